"""Who acts: of all replicas the one that holds the Lease.

The election is that of the official client; the Lease it is about is ours, because that of the client cannot create one
and ends the election when the API server does not answer. Here that counts as a try that failed, every request has
a bound, and the Lease is given back on an orderly stop, so that the next one need not wait until it runs out. Each
change of hands raises ``leaseTransitions``. That number is the leader's *epoch*: it goes with everything that the
leader tells a queue to do, and a queue that has heard a higher one refuses (see ``lua/lib/base.lua``). A leader that
was frozen past the end of its Lease changes nothing any more.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock

from ..kube import LEASES, ApiProblem, Kube

LEASE_S: Final = 6
RENEW_DEADLINE_S: Final = 4
RETRY_S: Final = 1
"""After a kill -9 the next replica takes over within LEASE_S + RETRY_S and a request."""
_REQUEST_S: Final = 2.0

_log = structlog.get_logger(__name__)


class FencedLease(BaseLock):
    """A Lease that counts its holders."""

    def __init__(self, kube: Kube, namespace: str, name: str, identity: str) -> None:
        super().__init__(name, namespace, identity)
        self._kube = kube
        self._found: dict[str, Any] = {}
        self.epoch = 0
        """The number of the term for which this replica last tried to have the Lease."""

    async def get(self, name: str, namespace: str) -> Any:
        """(True, what it says) or (False, why there is no answer), as the election wants it."""
        try:
            async with asyncio.timeout(_REQUEST_S):
                self._found = await self._kube.get(LEASES, namespace, name)
        except ApiProblem as problem:
            body = json.dumps({"code": problem.status})
            return False, ApiException(status=problem.status, reason=problem.message, body=body)
        except TimeoutError:
            return False, ApiException(status=0, reason="the API server does not answer", body=None)
        spec = self._found.get("spec") or {}
        return True, LeaderElectionRecord(
            spec.get("holderIdentity") or None,
            str(spec.get("leaseDurationSeconds") or LEASE_S),
            spec.get("acquireTime") or "never",
            spec.get("renewTime") or "never",
        )

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        self.epoch = _first_epoch()
        body = {"metadata": {"name": name, "namespace": namespace}, "spec": self._held_from_now()}
        return await self._tried(self._kube.create(LEASES, namespace, body, may_exist=False))

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        spec = self._found.get("spec") or {}
        transitions = spec.get("leaseTransitions") or _first_epoch()
        if spec.get("holderIdentity") == self.identity:
            self.epoch = transitions
            held = {**spec, "renewTime": _now()}
        else:
            self.epoch = transitions + 1
            held = self._held_from_now()
        return await self._tried(self._kube.replace(LEASES, namespace, {**self._found, "spec": held}))

    async def release(self) -> None:
        """Leave the Lease to whoever asks next."""
        held, record = await self.get(self.name, self.namespace)
        if not held or record.holder_identity != self.identity:
            return
        # The count stays with the Lease: it must go on rising.
        spec = {key: value for key, value in self._found["spec"].items() if key != "holderIdentity"}
        await self._tried(self._kube.replace(LEASES, self.namespace, {**self._found, "spec": spec}))

    def _held_from_now(self) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_S,
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": self.epoch,
        }

    async def _tried(self, attempt: Awaitable[object]) -> bool:
        try:
            async with asyncio.timeout(_REQUEST_S):
                await attempt
        except (ApiProblem, TimeoutError) as error:
            if not (isinstance(error, ApiProblem) and error.is_conflict):  # somebody was quicker, as it happens
                _log.warning("the lease could not be written", error=repr(error))
            return False
        return True


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _first_epoch() -> int:
    """Where counting begins: so high that a Lease which somebody has deleted does not begin below its last number."""
    return int((datetime.now(UTC) - datetime(2024, 1, 1, tzinfo=UTC)).total_seconds())


class Leadership:
    """Leads whenever it can, until stopped."""

    def __init__(self, kube: Kube, *, namespace: str, name: str, identity: str) -> None:
        self._lock = FencedLease(kube, namespace, name, identity)
        self.is_leader = False

    async def run(self, lead: Callable[[int], Awaitable[None]]) -> None:
        """Call ``lead(epoch)`` for each term; it is cancelled when the term ends. Runs until cancelled."""
        try:
            while True:
                await self._one_term(lead)
        finally:
            # From here on nobody acts any more, so the next one may begin at once.
            self.is_leader = False
            await asyncio.shield(self._lock.release())

    async def _one_term(self, lead: Callable[[int], Awaitable[None]]) -> None:
        term: asyncio.Task[None] | None = None

        async def begin() -> None:
            nonlocal term
            self.is_leader = True
            _log.info("leading", identity=self._lock.identity, epoch=self._lock.epoch)
            term = asyncio.ensure_future(lead(self._lock.epoch))
            term.add_done_callback(lambda _: failed.set())

        async def end() -> None:
            pass

        failed = asyncio.Event()
        election = asyncio.create_task(
            LeaderElection(Config(self._lock, LEASE_S, RENEW_DEADLINE_S, RETRY_S, begin, end)).run()
        )
        broken = asyncio.create_task(failed.wait())
        try:
            await asyncio.wait({election, broken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            started_s = time.monotonic()
            for task in (election, broken, *([term] if term is not None else [])):
                task.cancel()
            await asyncio.gather(election, broken, *([term] if term is not None else []), return_exceptions=True)
            if term is not None:
                _log.info(
                    "leading no more", identity=self._lock.identity, took_s=round(time.monotonic() - started_s, 2)
                )
        self.is_leader = False
        # The election ends without an error when the Lease was lost, and with one only if it could not cope.
        ended: list[asyncio.Task[Any]] = [election] if term is None else [term, election]
        for task in ended:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
