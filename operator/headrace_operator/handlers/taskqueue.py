"""TaskQueue: publish its configuration, look after its queue, say how it is."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from headrace.model.errors import (
    BackendError,
    ConfigConflict,
    QueueHeld,
    UnknownQueue,
)
from headrace.model.figures import Pulse
from headrace.queue.bells import Bells
from headrace.queue.inspection import Inspector
from headrace.queue.queue import Queue
from headrace.queue.settings import RedisSettings

from ..backends import Backends
from ..controllers.keeper import Keeper
from ..kube import SECRETS, ApiProblem, Kube
from ..metrics.queue_figures import QueueView
from ..options import Options
from ..reading import InvalidResource
from ..redis_reference import redis_settings
from ..reporting import Reporter
from ..resources import TaskQueueResource
from ..status import Condition, merge_conditions, taskqueue_status
from ..store import Body, Store
from .queue_conditions import figures_of, keys_of, not_ready, reachable, ready, unreachable
from .refusal import Refusal

RESYNC_S: Final = 30.0
_BROKEN_RESYNC_S: Final = 3.0
"""After this time, and then after twice that and so on, it is looked whether somebody has mended what was missing:
Secrets are not watched, and a server that swallows connections must not take all the time there is."""
_REPUBLISH_S: Final = 20.0
"""A holder that is not heard of loses its queue to others (see ``configure.lua``)."""
_FIRST_LOOK_S: Final = 2.0

_log = structlog.get_logger(__name__)

Place = tuple[str, str]


@dataclass
class Care:
    """A queue that is looked after."""

    resource: TaskQueueResource
    settings: RedisSettings
    queue: Queue
    keeper: Keeper
    bells: Bells
    task: asyncio.Task[None] | None = None
    """The keeper at work: from the moment the queue is published."""
    published_at_s: float = 0.0
    published_generation: int = -1
    is_published: bool = False
    secrets_read_at_s: float = field(default_factory=time.monotonic)


class TaskQueues:
    """The TaskQueues of this leader's term."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        reporter: Reporter,
        backends: Backends,
        options: Options,
        epoch: int,
        changed: Callable[[Place], None],
    ) -> None:
        self._kube = kube
        self._store = store
        self._reporter = reporter
        self._backends = backends
        self._options = options
        self._epoch = epoch
        self._changed = changed
        self._cared_for: dict[Place, Care] = {}
        self._looked_at: set[Place] = set()
        self._out_of_reach: set[Place] = set()
        """TaskQueues whose Redis did not answer when they were last looked at."""
        self._failures: dict[Place, int] = {}

    def has_looked_at(self, namespace: str, name: str) -> bool:
        """Whether this leader knows how the TaskQueue is. At the beginning of its term it does not."""
        return (namespace, name) in self._looked_at

    def care(self, namespace: str, name: str) -> Care | None:
        """The queue of this TaskQueue, if it is in force."""
        found = self._cared_for.get((namespace, name))
        return found if found is not None and found.is_published else None

    def cares(self, namespace: str) -> list[Care]:
        """The queues of this namespace that are in force."""
        return [care for (place, _), care in self._cared_for.items() if place == namespace and care.is_published]

    def views(self) -> list[QueueView]:
        """Every TaskQueue there is, as far as it is known how it is."""
        return [self._view(body) for body in self._store.all("TaskQueue")]

    def _view(self, body: Body) -> QueueView:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        created_at, care = body["metadata"]["creationTimestamp"], self.care(namespace, name)
        if care is not None:  # its keeper has asked last
            return QueueView(namespace, name, created_at, care.keeper.is_reachable, care.keeper.current_pulse)
        return QueueView(namespace, name, created_at, False if (namespace, name) in self._out_of_reach else None, None)

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Make the TaskQueue true; returns when to look again."""
        place = (namespace, name)
        try:
            again_after_s = await self._reconcile(place)
        finally:
            self._looked_at.add(place)
        if again_after_s != _BROKEN_RESYNC_S:
            self._failures.pop(place, None)
            return again_after_s
        failures = self._failures.get(place, 0)
        self._failures[place] = failures + 1
        return min(RESYNC_S, _BROKEN_RESYNC_S * 2.0 ** min(failures, 10))

    async def _reconcile(self, place: Place) -> float | None:
        namespace, name = place
        body = self._store.get("TaskQueue", namespace, name)
        if body is None or body["metadata"].get("deletionTimestamp"):
            await self._stop(place)
            self._out_of_reach.discard(place)
            return None
        try:
            resource = self._checked(body)
            care = await self._care_for(resource)
            await self._publish(care)
        except Refusal as refusal:
            await self._stop(place)
            await self._report(body, None, [not_ready(refusal.reason, refusal.message)])
            return _BROKEN_RESYNC_S
        except QueueHeld as error:
            await self._stop(place)
            await self._report(body, None, [not_ready("KeysClaimed", _claimed_by(error.holder))])
            return RESYNC_S
        except ConfigConflict as error:
            await self._report(body, self._cared_for[place].keeper.pulse, [not_ready("LevelInUse", f"spec.{error}")])
            return _BROKEN_RESYNC_S
        except BackendError as error:
            await self._report(body, None, unreachable(error))
            return _BROKEN_RESYNC_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_S):
                await care.keeper.first_look.wait()
        if care.task is None or care.task.done():
            await self._stop(place)  # another operator has been told to lead; if it was not, we begin anew
            return _BROKEN_RESYNC_S
        if care.keeper.problem is not None:
            await self._report(body, care.keeper.pulse, unreachable(care.keeper.problem))
            return _BROKEN_RESYNC_S
        await self._report(body, care.keeper.pulse, [ready(resource), *reachable(resource, care.keeper.pulse)])
        return RESYNC_S

    async def gone(self, body: Body) -> None:
        """A TaskQueue was deleted: let its queue go, or purge it."""
        place = (body["metadata"]["namespace"], body["metadata"]["name"])
        try:
            resource = self._checked(body)
            settings = await self._settings(resource)
        except Refusal as refusal:
            _log.warning("a deleted TaskQueue's keys stay as they are", taskqueue="/".join(place), reason=str(refusal))
            return
        await self._stop(place)
        backend = self._backends.use(settings, body["metadata"]["uid"])
        try:
            await backend.connection.open()
            queue = Queue(backend.transport, resource.tenant, resource.queue_name, epoch=self._epoch)
            if resource.deletion_policy == "Purge":
                deleted = await queue.wipe(_holder(resource))
                await self._reporter.say(body, "Purged", f"Removed {deleted} keys of {keys_of(resource)} from Redis")
            else:
                await queue.release(_holder(resource))
                message = (
                    f"The tasks of {keys_of(resource)} stay in Redis; deletionPolicy: Purge would have removed them"
                )
                await self._reporter.say(body, "DataKept", message)
        except (QueueHeld, UnknownQueue) as error:
            # It was refused when it wanted the queue, or has been followed by another; these keys are not its own.
            _log.info("a deleted TaskQueue had no queue of its own", taskqueue="/".join(place), reason=str(error))
        finally:
            self._backends.leave(body["metadata"]["uid"])

    async def aclose(self) -> None:
        """Look after nothing any more."""
        for place in list(self._cared_for):
            await self._stop(place)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────

    def _checked(self, body: Body) -> TaskQueueResource:
        """The resource, if it may have the keys that it names."""
        try:
            resource = TaskQueueResource.from_body(body)
        except InvalidResource as error:
            raise Refusal("InvalidSpec", str(error)) from error
        namespace = resource.ref.namespace
        if not self._options.allows(namespace, resource.tenant):
            raise Refusal(
                "TenantNotAllowed",
                f"spec.tenant: namespace {namespace} may not use the tenant {resource.tenant!r}; leave it out to use "
                f"{namespace!r}, or have it allowed in the operator's --tenants",
            )
        for other in self._same_keys(resource):
            if (other.created_at, other.ref.uid) < (resource.created_at, resource.ref.uid):
                raise Refusal("KeysClaimed", _claimed_by(_holder(other)))
        return resource

    def _same_keys(self, resource: TaskQueueResource) -> list[TaskQueueResource]:
        """Other TaskQueues with the same tenant and queue on what looks like the same Redis.

        Names of hosts mean different servers in different namespaces. What differs in words and is the same server is
        found in Redis itself.
        """
        found = []
        for body in self._store.all("TaskQueue", resource.ref.namespace):
            named = (body.get("spec") or {}).get("queue") or body["metadata"]["name"]
            if named != resource.queue_name:
                continue  # nearly all of them, and reading one takes a while
            with contextlib.suppress(InvalidResource):
                other = TaskQueueResource.from_body(body)
                if (
                    other.ref.uid != resource.ref.uid
                    and (other.tenant, other.queue_name) == (resource.tenant, resource.queue_name)
                    and (other.ref.namespace, other.redis) == (resource.ref.namespace, resource.redis)
                    and self._options.allows(other.ref.namespace, other.tenant)
                ):
                    found.append(other)
        return found

    async def _care_for(self, resource: TaskQueueResource) -> Care:
        place = (resource.ref.namespace, resource.ref.name)
        care = self._cared_for.get(place)
        if care is not None and care.resource.ref.uid != resource.ref.uid:
            await self._stop(place)
            care = None
        fresh = care is not None and care.resource.redis == resource.redis
        if care is not None and fresh:
            patience_s = RESYNC_S if care.is_published and care.keeper.problem is None else _BROKEN_RESYNC_S
            if time.monotonic() - care.secrets_read_at_s < patience_s - 0.5:
                care.resource = resource
                return care
        settings = await self._settings(resource)
        if care is not None and care.settings == settings:
            care.resource, care.secrets_read_at_s = resource, time.monotonic()
            return care
        await self._stop(place)
        backend = self._backends.use(settings, resource.ref.uid)
        try:
            await backend.connection.open()
        except BackendError:
            self._backends.leave(resource.ref.uid)
            raise
        queue = Queue(backend.transport, resource.tenant, resource.queue_name, epoch=self._epoch)
        keeper = Keeper(queue, Inspector(backend.transport, queue), lambda: self._changed(place))
        backend.bells.listen(queue.keys, keeper.heard)
        care = Care(resource, settings, queue, keeper, backend.bells)
        self._cared_for[place] = care
        return care

    async def _publish(self, care: Care) -> None:
        """Publish the configuration if it is new, and now and then to be heard of."""
        resource = care.resource
        # A Redis that came back without its data has forgotten the queue, and workers wait for it.
        is_due = time.monotonic() - care.published_at_s > _REPUBLISH_S or care.keeper.is_forgotten
        if not is_due and care.published_generation == resource.generation and care.is_published:
            return
        await care.queue.define(
            resource.config, owner="operator", generation=resource.generation, holder=_holder(resource)
        )
        if resource.paused is not None:
            await (care.queue.pause() if resource.paused else care.queue.resume())
        care.published_at_s, care.published_generation = time.monotonic(), resource.generation
        care.keeper.published()
        if not care.is_published:
            care.is_published = True
            care.task = asyncio.create_task(care.keeper.run())

    async def _settings(self, resource: TaskQueueResource) -> RedisSettings:
        reference, namespace = resource.redis, resource.ref.namespace
        secret = None
        if reference.secret_name is not None:
            secret = await self._secret(namespace, reference.secret_name, "spec.redis.secretRef")
        ca_file = None
        if reference.ca_secret is not None:
            name, key = reference.ca_secret
            certificates = await self._secret(namespace, name, "spec.redis.tls.caSecretRef")
            if key not in certificates:
                raise Refusal("SecretInvalid", f"spec.redis.tls.caSecretRef: Secret {name} has no key {key!r}; add it")
            ca_file = self._backends.certificate_file(certificates[key])
        try:
            settings = redis_settings(reference, secret, ca_file)
        except InvalidResource as error:
            raise Refusal("SecretInvalid", str(error)) from error
        return as_seen_from(namespace, settings)

    async def _secret(self, namespace: str, name: str, field_name: str) -> dict[str, str]:
        try:
            secret = await self._kube.get(SECRETS, namespace, name)
        except ApiProblem as problem:
            if problem.is_missing:
                raise Refusal(
                    "SecretMissing", f"{field_name}: Secret {name} does not exist in namespace {namespace}; create it"
                ) from problem
            raise
        try:
            return {key: base64.b64decode(text).decode() for key, text in (secret.get("data") or {}).items()}
        except (binascii.Error, UnicodeDecodeError) as error:
            raise Refusal("SecretInvalid", f"{field_name}: Secret {name} holds what is not text") from error

    async def _stop(self, place: Place) -> None:
        care = self._cared_for.pop(place, None)
        if care is None:
            return
        if care.task is not None:
            care.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await care.task
        care.bells.ignore(care.queue.keys)
        self._backends.leave(care.resource.ref.uid)

    async def _report(self, body: Body, pulse: Pulse | None, conditions: list[Condition]) -> None:
        old = body.get("status") or {}
        generation = body["metadata"]["generation"]
        place = (body["metadata"]["namespace"], body["metadata"]["name"])
        if any(found.type == "BackendReachable" and found.status == "False" for found in conditions):
            self._out_of_reach.add(place)
        else:
            self._out_of_reach.discard(place)
        merged = merge_conditions(old.get("conditions") or [], conditions, generation, datetime.now(UTC))
        await self._reporter.report(body, taskqueue_status(old, generation, figures_of(pulse), merged))


def as_seen_from(namespace: str, settings: RedisSettings) -> RedisSettings:
    """The same servers, by names that mean the same in every namespace.

    A name without a dot is that of a service beside the TaskQueue, as its workers see it; the operator is elsewhere.
    """
    hosts = tuple(
        (host if "." in host or ":" in host else f"{host}.{namespace}.svc", port) for host, port in settings.hosts
    )
    return msgspec.structs.replace(settings, hosts=hosts)


def _holder(resource: TaskQueueResource) -> str:
    return f"{resource.ref.namespace}/{resource.ref.name}/{resource.ref.uid}"


def _claimed_by(holder: str) -> str:
    place = holder.rpartition("/")[0] or holder
    return f"TaskQueue {place} has these keys already; give this one another spec.queue, or delete one of the two"
