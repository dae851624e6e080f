"""Start-up: the watch, the election, and what a leader does.

Kopf watches; its handlers here only put into the store what they see. None of them keeps state in the objects and none
sets a finalizer, so a namespace can be deleted with no operator around.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Sequence
from typing import Any, Final, cast

import kopf
import structlog

from headrace.model.errors import BackendError, HeadraceError
from headrace.observability.logs import configure_foreign_logs, configure_logs

from . import health as health_server
from .backends import Backends
from .controllers.leadership import Leadership
from .events import Recorder
from .handlers.taskqueue import Place, TaskQueues
from .handlers.workerpool import WorkerPools
from .health import Health
from .kube import DEPLOYMENTS, PODS, TASK_QUEUES, WORKER_POOLS, ApiProblem, Kube, Resource, connect
from .metrics.page import MetricsPage
from .options import Options, parse
from .reporting import Reporter
from .resources import POOL_LABEL
from .store import Body, Key, Kind, Store, key_of, pool_of
from .work import Work

RESOURCES: Final[dict[Kind, Resource]] = {
    "TaskQueue": TASK_QUEUES,
    "WorkerPool": WORKER_POOLS,
    "Deployment": DEPLOYMENTS,
    "Pod": PODS,
}
_RECONCILED: Final[tuple[Kind, ...]] = ("TaskQueue", "WorkerPool")
_LABELLED: Final[tuple[Kind, ...]] = ("Deployment", "Pod")
_COMPARE_S: Final = 60.0
_FIRST_COMPARE_S: Final = 0.25
_FIGURES_S: Final = 1.0
"""Figures that change all the time are shown once in this time."""
_TOMBSTONE_S: Final = 900.0
"""For so long a deletion is remembered by those who do not lead: one of them may have to deal with it."""
_TOMBSTONE_RETRY_S: Final = 10.0

_log = structlog.get_logger(__name__)


class Operator:
    """One replica."""

    def __init__(self, options: Options, kube: Kube) -> None:
        self._options = options
        self._kube = kube
        self._store = Store()
        self._store.subscribe(self._noticed)
        self._work: Work[Key] = Work()
        self._tombstones: dict[str, tuple[float, Body]] = {}
        """Deleted TaskQueues, by uid, that a leader has not dealt with yet."""
        self.health = Health()
        self._leadership = Leadership(
            kube, namespace=options.lease_namespace, name=options.lease_name, identity=options.identity
        )
        self._metrics = MetricsPage(lambda: self._leadership.is_leader, options.metrics_max_queues)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, or until a part of it breaks, which is then raised."""
        server = None
        if self._options.health_port is not None:
            server = await health_server.serve(self.health, self._options.health_port, self._about, self._metrics.text)
        parts = {
            asyncio.create_task(self._watch(stop), name="watch"),
            asyncio.create_task(self._compare_forever(), name="compare"),
            asyncio.create_task(self._leadership.run(self._lead), name="leadership"),
        }
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait({*parts, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()
        finally:
            stop.set()
            for task in (*parts, stopping):
                if task.get_name() != "watch":
                    task.cancel()
            await asyncio.gather(*parts, stopping, return_exceptions=True)
            if server is not None:
                server.close()
            self._metrics.close()

    def _about(self) -> dict[str, object]:
        return {"leader": self._leadership.is_leader, "filled": self.health.is_filled}

    # ── watching ─────────────────────────────────────────────────────────────────────────────────────

    async def _watch(self, stop: asyncio.Event) -> None:
        registry = kopf.OperatorRegistry()
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.process.ultimate_exiting_timeout = None
        for kind in _LABELLED:
            resource = RESOURCES[kind]
            settings.watching.label_selectors[resource.group, resource.version, resource.plural] = POOL_LABEL
        kopf.on.login(registry=registry)(_login)
        for kind, resource in RESOURCES.items():
            for verb in ("list", "watch"):
                _log.debug("api request", verb=verb, group=resource.group, resource=resource.plural, subresource="")
            kopf.on.event(resource.group, resource.version, resource.plural, id=kind, registry=registry)(
                _seen(self._store, kind)
            )
        others = asyncio.all_tasks()
        watching = await kopf.spawn_tasks(
            registry=registry,
            settings=settings,
            clusterwide=not self._options.namespaces,
            namespaces=self._options.namespaces,
            # Of no use without peering; but left to itself Kopf makes one from a user's name, which a container lacks.
            identity=cast(Any, self._options.identity),
            stop_flag=stop,
        )
        # Kopf has just taken the signals to itself. Taken back, they end all parts at the same moment, and the Lease is
        # free before the watch has come to its end.
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await kopf.run_tasks(watching, ignored=others)

    async def _compare_forever(self) -> None:
        """Ask now and then for what the watch should have told."""
        while True:
            complete = False
            try:
                complete = await self._compare()
                if self.health.is_filled:
                    self.health.blind_checks = 0 if complete else self.health.blind_checks + 1
                self.health.is_filled = True
            except ApiProblem as problem:
                _log.warning("cannot list what there is", error=str(problem))
            await asyncio.sleep(_COMPARE_S if self.health.is_filled else _FIRST_COMPARE_S)

    async def _compare(self) -> bool:
        complete = True
        for kind, resource in RESOURCES.items():
            for namespace in self._options.namespaces or (None,):
                before = self._store.uids(kind, namespace)
                # Whatever is older than this question is in the answer.
                listed = await self._kube.list(resource, namespace, POOL_LABEL if kind in _LABELLED else "")
                for item in listed:
                    item.setdefault("apiVersion", f"{resource.group}/{resource.version}")
                    item.setdefault("kind", kind)
                complete &= self._store.compare(kind, listed, before)
        return complete

    def _noticed(self, key: Key, body: Body, gone: bool) -> None:
        """Something has changed: say what has to be looked at."""
        if key.kind == "TaskQueue" and gone:
            self._bury(body)
        if key.kind in ("TaskQueue", "WorkerPool"):
            self._work.add(key)
        if key.kind == "TaskQueue":
            self._add_pools_of(key.namespace, key.name)
        elif key.kind != "WorkerPool" and (pool := pool_of(body)) is not None:
            self._work.add(Key("WorkerPool", key.namespace, pool))

    def _add_pools_of(self, namespace: str, taskqueue: str) -> None:
        for pool in self._store.all("WorkerPool", namespace):
            if taskqueue in ((pool.get("spec") or {}).get("queues") or []):
                self._work.add(Key("WorkerPool", namespace, pool["metadata"]["name"]))

    def _bury(self, body: Body) -> None:
        now_s = time.monotonic()
        for uid, (when_s, _) in list(self._tombstones.items()):
            if now_s - when_s > _TOMBSTONE_S:
                del self._tombstones[uid]
        self._tombstones[body["metadata"]["uid"]] = (now_s, body)

    # ── leading ──────────────────────────────────────────────────────────────────────────────────────

    async def _lead(self, epoch: int) -> None:
        """What a leader does for one term; cancelled at its end."""
        while not self.health.is_filled:  # noqa: ASYNC110 - once, at the start
            await asyncio.sleep(0.05)
        backends = Backends()
        recorder = Recorder(self._kube, self._options.identity)
        taskqueues = TaskQueues(
            self._kube,
            self._store,
            Reporter(self._kube, self._store, recorder, "TaskQueue", TASK_QUEUES),
            backends,
            self._options,
            epoch,
            self._figures_changed,
        )
        pools = WorkerPools(
            self._kube,
            self._store,
            Reporter(self._kube, self._store, recorder, "WorkerPool", WORKER_POOLS),
            taskqueues,
            self._metrics.pools,
        )

        async def look(key: Key) -> float | None:
            with structlog.contextvars.bound_contextvars(kind=key.kind, namespace=key.namespace, name=key.name):
                if key.kind == "WorkerPool":
                    return await pools.reconcile(key.namespace, key.name)
                # First what was: one that is made anew under the same name must not get what was to be purged.
                await self._deal_with_deleted(taskqueues, key)
                was_ready = taskqueues.care(key.namespace, key.name) is not None
                again_after_s = await taskqueues.reconcile(key.namespace, key.name)
                if was_ready != (taskqueues.care(key.namespace, key.name) is not None):
                    self._add_pools_of(key.namespace, key.name)
                return again_after_s

        self._work.clear()
        for kind in _RECONCILED:
            for body in self._store.all(kind):
                self._work.add(key_of(kind, body))
        for _, body in self._tombstones.values():
            self._work.add(key_of("TaskQueue", body))
        self.health.watch_loop("reconcile", lambda: self._work.moved_at_s)
        self._metrics.lead(taskqueues.views)
        try:
            await self._work.run(look, expected=(ApiProblem, HeadraceError))
        finally:
            self.health.drop_loop("reconcile")
            self._metrics.follow()
            await taskqueues.aclose()
            await backends.aclose()

    async def _deal_with_deleted(self, taskqueues: TaskQueues, key: Key) -> None:
        for uid, (when_s, body) in list(self._tombstones.items()):
            if key_of("TaskQueue", body) != key:
                continue
            try:
                await taskqueues.gone(body)
            except BackendError as error:
                # One of the same name that is made with a better address must not have to wait for this.
                if time.monotonic() - when_s < _TOMBSTONE_S:
                    self._work.add(key, _TOMBSTONE_RETRY_S)
                    continue
                _log.warning("gave up on a deleted TaskQueue: its Redis does not answer", error=str(error))
            self._tombstones.pop(uid, None)

    def _figures_changed(self, place: Place) -> None:
        namespace, name = place
        self._work.add(Key("TaskQueue", namespace, name), _FIGURES_S)
        self._add_pools_of(namespace, name)


def _seen(store: Store, kind: Kind) -> Any:
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        body = dict(event["object"])
        if event["type"] == "DELETED":
            store.remove(kind, body)
        else:
            store.put(kind, body)

    return seen


async def _login(**arguments: Any) -> Any:
    return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)


async def run(options: Options) -> None:
    """Run one replica until SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    api = await connect()
    try:
        _log.info("operator starts", identity=options.identity, namespaces=list(options.namespaces) or "all")
        await Operator(options, Kube(api)).run(stop)
        _log.info("operator stops", identity=options.identity)
    finally:
        await api.close()  # type: ignore[no-untyped-call]


def main(arguments: Sequence[str] | None = None) -> None:
    """``headrace operator``."""
    options = parse(arguments)
    configure_logs(options.log_level, options.log_style)  # type: ignore[arg-type]
    # Kopf and the client speak through the standard library. What is worth knowing of that looks like our own.
    configure_foreign_logs("warning", options.log_style)  # type: ignore[arg-type]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(options))


if __name__ == "__main__":
    main()
