"""The operator in a test cluster: deploying it, finding its leader, killing things, and what it has asked the API for.

Manifests are made as JSON, which is YAML too. Everything goes through kubectl, as it does for users; only what kills a
process needs Docker, because it takes a shell on the node.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from headrace import Headrace, QueueConfig, QueueStats, TaskRecord, TaskState, WorkerRecord
from headrace.model.config import stored_config
from headrace.queue import wire
from headrace.queue.keys import QueueKeys, queue_names_key
from tests.cluster import kind
from tests.cluster.cache import locked
from tests.cluster.lifecycle import Cluster
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import run, succeeds
from tests.e2e.test_by_hand import kill_container
from tests.support import images
from tests.support.chart import Release
from tests.support.kubernetes import CONDITION_TIMEOUT_S, Namespace

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"

NAMESPACE = "headrace-system"
NAME = "headrace-operator"
"""What the chart calls the operator's Deployment, Lease and roles in a release that is called `headrace`."""
OPERATOR_PODS = "app.kubernetes.io/name=headrace,app.kubernetes.io/component=operator"
SAMPLE_TASKS = "headrace_samples.tasks:app"

# Every question to kubectl is a process of its own, and the cluster shares this machine: ask less often than one could.
_POLL_S = 1.0
_REDIS_POLL_S = 0.2
_EVENTS_PER_CALL = 1000
_LOG_TIMEOUT_S = 120.0
_NODE_TIMEOUT_S = 60.0
_API_SERVER = "/etc/kubernetes/manifests/kube-apiserver.yaml"
_API_SERVER_ASIDE = "/etc/kubernetes/kube-apiserver.aside"
_KILL_API_SERVER = "kill -9 $(grep -lsx kube-apiserver /proc/[0-9]*/comm | cut -d/ -f3) || true"
# When the API server returns, the controllers that gave up meanwhile wait out the pauses between their restarts.
AFTER_OUTAGE_TIMEOUT_S = 600.0


def wait_for(
    predicate: Callable[[], Any], message: str, timeout_s: float = CONDITION_TIMEOUT_S, *, poll_s: float = _POLL_S
) -> Any:
    """Ask until the answer is truthy, and return it."""
    deadline_s = time.monotonic() + timeout_s
    while not (outcome := predicate()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{message} within {timeout_s:g} s (last: {outcome!r})")
        time.sleep(poll_s)
    return outcome


# ── manifests ────────────────────────────────────────────────────────────────────────────────────────


def documents(manifest: str | Path) -> list[str]:
    """The documents of a YAML file, as text."""
    text = manifest.read_text() if isinstance(manifest, Path) else manifest
    return re.split(r"^---$\n", text, flags=re.MULTILINE)


def kind_of(document: str) -> str:
    """What a document is about."""
    found = re.search(r"^kind: (\w+)$", document, flags=re.MULTILINE)
    assert found, f"no kind in:\n{document}"
    return found.group(1)


def replaced(text: str, old: str, new: str) -> str:
    """``text`` with its only ``old`` replaced: a manifest that has changed since must not be used as it was."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the manifest, not once"
    return text.replace(old, new)


def taskqueue(name: str, **spec: Any) -> dict[str, Any]:
    """A TaskQueue on the namespace's own Redis."""
    return _custom_resource("TaskQueue", name, {"redis": {"hosts": ["redis:6379"]}} | spec)


def workerpool(name: str, queues: Sequence[str], *, replicas: int = 1, **spec: Any) -> dict[str, Any]:
    """A WorkerPool of so many workers that run the sample tasks."""
    usual = {
        "queues": list(queues),
        "image": images.WORKER,
        "tasks": SAMPLE_TASKS,
        "concurrency": 2,
        "minReplicas": 0,
        "maxReplicas": 10,
        "replicas": replicas,
    }
    return _custom_resource("WorkerPool", name, usual | spec)


IDLE_S = 3
# One slot for each task: what waits is what is needed. And a grace period that is shorter than most tasks.
_EAGER = {"concurrency": 1, "targetDrainSeconds": 0.01, "backlogPerWorker": 1, "idleSeconds": IDLE_S, "graceSeconds": 1}


def automatic(name: str, queues: Sequence[str], **spec: Any) -> dict[str, Any]:
    """A WorkerPool whose size follows its load: a worker for each task."""
    found = workerpool(name, queues, **{**_EAGER, **spec})
    del found["spec"]["replicas"]
    return found


def secret(name: str, **values: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}


def service_account(name: str, *, allows_workers: bool) -> dict[str, Any]:
    annotations = {"headrace.dev/allow-workers": "true"} if allows_workers else {}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _custom_resource(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "headrace.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


def apply(namespace: Namespace, *objects: Mapping[str, Any]) -> None:
    """Apply all of them in one call."""
    namespace.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def change(namespace: Namespace, what: str, **spec: Any) -> None:
    """Change fields of an object's spec, such as ``workerpool/steady``."""
    namespace.kubectl("patch", what, "--type=merge", f"--patch={json.dumps({'spec': spec})}")


# ── Redis ────────────────────────────────────────────────────────────────────────────────────────────


def deploy_redis(namespace: Namespace, *, durable: bool = False) -> None:
    """The Redis of ``examples/by-hand.yaml``; a durable one has its data again after a crash."""
    ours = [text for text in documents(EXAMPLES / "by-hand.yaml") if re.search(r"^  name: redis$", text, re.MULTILINE)]
    assert [kind_of(text) for text in ours] == ["Service", "Deployment"]
    namespace.apply("---\n".join(ours))
    if durable:
        namespace.kubectl("patch", "deployment/redis", "--type=strategic", f"--patch={json.dumps(_DURABLE)}")
    namespace.wait_for_rollout("redis")


_DURABLE = {
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "redis",
                        # The image's own arguments, and a file that has every write before it is confirmed.
                        "args": [
                            *("--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""),
                            *("--maxmemory-policy", "noeviction", "--appendonly", "yes", "--appendfsync", "always"),
                        ],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }
                ],
                # Lives as long as the pod, whatever becomes of the container.
                "volumes": [{"name": "data", "emptyDir": {}}],
            }
        }
    }
}


# ── producing tasks ──────────────────────────────────────────────────────────────────────────────────


class Producer:
    """Tasks for one queue, from outside of the cluster."""

    def __init__(self, app: Headrace, queue: str, url: str) -> None:
        self.app = app.blocking
        self.queue = queue
        self._headrace = app
        self._url = url

    def enqueue(self, task: str, *arguments: Sequence[Any], **options: Any) -> list[str]:
        """One task for each list of arguments; the answer is their ids."""
        remote = self._headrace.remote(task, queue=self.queue, **options)
        return [handle.id for handle in self.app.enqueue_many([remote.call(*each) for each in arguments])]

    def record(self, task_id: str) -> TaskRecord:
        return self.app.handle(self.queue, task_id).record()

    def records(self, task_ids: Iterable[str]) -> list[TaskRecord]:
        return [self.record(task_id) for task_id in task_ids]

    def stats(self) -> QueueStats:
        return self.app.stats(self.queue)

    def config(self) -> QueueConfig:
        """The configuration in force."""
        with self._redis() as client:
            stored = client.hget(QueueKeys(self._headrace.tenant, self.queue).config, "json")
        assert isinstance(stored, (str, bytes))
        return stored_config(stored)

    def workers(self) -> list[WorkerRecord]:
        return self.app.workers(self.queue)

    def finished(self, task_ids: Iterable[str], timeout_s: float = CONDITION_TIMEOUT_S) -> list[TaskRecord]:
        """The records of the tasks when the last of them has come to its end."""
        records: dict[str, TaskRecord | None] = dict.fromkeys(task_ids)

        def all_have_ended() -> bool:
            for task_id, record in records.items():
                if record is None or not record.state.is_terminal:
                    records[task_id] = self.record(task_id)
            return all(record is not None and record.state.is_terminal for record in records.values())

        wait_for(all_have_ended, "the tasks did not come to their end", timeout_s, poll_s=_REDIS_POLL_S)
        return [record for record in records.values() if record is not None]

    def completed(self, task_ids: Iterable[str], timeout_s: float = CONDITION_TIMEOUT_S) -> list[TaskRecord]:
        """The same, and every one of them has completed."""
        records = self.finished(task_ids, timeout_s)
        assert {record.state for record in records} == {TaskState.COMPLETED}
        return records

    def wait_until_executing(self, number: int) -> None:
        busy = f"{number} tasks were not at work at once"
        wait_for(lambda: self.stats().executing >= number, busy, poll_s=_REDIS_POLL_S)

    def stored_keys(self) -> list[str]:
        """Every key of this queue."""
        pattern = QueueKeys(self._headrace.tenant, self.queue).prefix.replace("[", "\\[") + "*"
        with self._redis() as client:
            return sorted(key.decode() for key in client.scan_iter(match=pattern, count=1000))

    def for_queue(self, queue: str) -> Producer:
        """The same for another queue, over the same connections."""
        return Producer(self._headrace, queue, self._url)

    def events(self) -> Iterator[tuple[float, tuple[str, str, str, int, str, str]]]:
        """What happened to tasks, the oldest first: when, and id, kind, level, attempt, worker, detail."""
        key, last = f"{QueueKeys(self._headrace.tenant, self.queue).prefix}events", "-"
        with self._redis() as client:
            while entries := client.xrange(key, last, count=_EVENTS_PER_CALL):
                for entry_id, fields in entries:
                    at_s = int(entry_id.partition(b"-")[0]) / 1000
                    yield from ((at_s, row) for row in wire.event_rows(fields[b"rows"]))
                last = f"({entries[-1][0].decode()}"

    def is_listed(self) -> bool:
        """Whether the tenant's list of queues has it."""
        with self._redis() as client:
            return bool(client.sismember(queue_names_key(self._headrace.tenant), self.queue))

    def _redis(self) -> redis.Redis:
        return redis.Redis.from_url(self._url)


@contextlib.contextmanager
def producing(namespace: Namespace, queue: str, *, tenant: str | None = None) -> Iterator[Producer]:
    """A producer for a queue on the namespace's Redis, as long as neither Redis nor the API server goes away."""
    with (
        namespace.forwarded("service/redis", 6379) as port,
        _producing(f"redis://127.0.0.1:{port}/0", queue, tenant or namespace.name) as producer,
    ):
        yield producer


@contextlib.contextmanager
def producing_on(release: Release, namespace: Namespace, queue: str) -> Iterator[Producer]:
    """The same on the Redis of a release, for a queue of that namespace."""
    with release.redis_forwarded() as url, _producing(url, queue, namespace.name) as producer:
        yield producer


@contextlib.contextmanager
def _producing(url: str, queue: str, tenant: str) -> Iterator[Producer]:
    app = Headrace(url, tenant=tenant)
    try:
        yield Producer(app, queue, url)
    finally:
        app.blocking.close()


# ── looking at objects ───────────────────────────────────────────────────────────────────────────────


def every(namespace: Namespace, kind: str, selector: str = "") -> list[dict[str, Any]]:
    """The objects of a kind."""
    answer = json.loads(namespace.kubectl("get", kind, f"--selector={selector}", "--output=json"))
    items: list[dict[str, Any]] = answer["items"]
    return items


def condition(body: Mapping[str, Any], type: str) -> dict[str, Any] | None:
    """That condition of an object, if it has it."""
    found: list[dict[str, Any]] = body.get("status", {}).get("conditions", [])
    return next((each for each in found if each["type"] == type), None)


def wait_for_condition(
    namespace: Namespace,
    kind: str,
    name: str,
    type: str,
    status: str,
    *,
    reason: str | None = None,
    timeout_s: float = CONDITION_TIMEOUT_S,
) -> dict[str, Any]:
    """The condition, when it is so for the spec as it is now. What the object said last is in the failure."""
    last: dict[str, Any] | None = None

    def is_so() -> bool:
        nonlocal last
        body = namespace.get(kind, name)
        last = condition(body, type)
        if last is None or last.get("observedGeneration") != body["metadata"]["generation"]:
            return False
        return last["status"] == status and reason in (None, last["reason"])

    wanted = f"{type}={status}" + (f" ({reason})" if reason else "")
    try:
        wait_for(is_so, f"{kind} {name} did not become {wanted}", timeout_s)
    except AssertionError as error:
        error.add_note(f"last seen: {json.dumps(last, indent=2)}")
        raise
    assert last is not None
    return last


def wait_until_ready(namespace: Namespace, *, queues: Iterable[str] = (), pools: Iterable[str] = ()) -> None:
    """Until all of these TaskQueues and WorkerPools say that they are."""
    for name in queues:
        wait_for_condition(namespace, "taskqueue", name, "Ready", "True")
    for name in pools:
        wait_for_condition(namespace, "workerpool", name, "Ready", "True")


def event(namespace: Namespace, kind: str, name: str, reason: str) -> dict[str, Any]:
    """The event about this object with this reason, when it is there."""
    about = f"involvedObject.kind={kind},involvedObject.name={name},reason={reason}"

    def found() -> list[dict[str, Any]]:
        answer = json.loads(namespace.kubectl("get", "events", f"--field-selector={about}", "--output=json"))
        items: list[dict[str, Any]] = answer["items"]
        return items

    first: dict[str, Any] = wait_for(found, f"there was no event {reason} about the {kind} {name}")[0]
    return first


def deployments(namespace: Namespace, pool: str) -> dict[str, dict[str, Any]]:
    """The pool's Deployments by their revision."""
    found = every(namespace, "deployments", f"headrace.dev/pool={pool}")
    return {each["metadata"]["labels"]["headrace.dev/revision"]: each for each in found}


def told(namespace: Namespace, pool: str) -> int:
    """How many pods the pool's Deployments have been told to have."""
    return sum(each["spec"]["replicas"] for each in deployments(namespace, pool).values())


def worker_pods(namespace: Namespace, pool: str) -> list[dict[str, Any]]:
    """The pool's pods that are not about to go."""
    return namespace.pods(f"headrace.dev/pool={pool}")


def wait_for_workers(
    namespace: Namespace, pool: str, number: int, timeout_s: float = CONDITION_TIMEOUT_S
) -> list[dict[str, Any]]:
    """The pool's pods when there are exactly so many, all of them ready."""

    def there() -> bool:
        pods = worker_pods(namespace, pool)
        return len(pods) == number and all(is_ready(pod) for pod in pods)

    wait_for(there, f"the pool {pool} did not get to {number} ready workers", timeout_s)
    return worker_pods(namespace, pool)


def wait_for_size(namespace: Namespace, pool: str, number: int, timeout_s: float = CONDITION_TIMEOUT_S) -> None:
    """Until there shall be exactly so many pods, and are."""

    def has_size() -> bool:
        return told(namespace, pool) == number and len(worker_pods(namespace, pool)) == number

    wait_for(has_size, f"the pool {pool} did not come to {number} pods", timeout_s)


def is_ready(pod: Mapping[str, Any]) -> bool:
    found = condition(pod, "Ready")
    return found is not None and found["status"] == "True"


def restarts(pods: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How often each pod's container was started again."""
    return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}


def tables(namespace: Namespace, what: str) -> dict[str, dict[str, str]]:
    """What ``kubectl get`` shows people: by name, each column's text. Columns may be empty."""
    rows: dict[str, dict[str, str]] = {}
    for block in namespace.kubectl("get", what).strip().split("\n\n"):
        heading, *lines = block.splitlines()
        columns = [(found.group(), found.start()) for found in re.finditer(r"\S+", heading)]
        ends = [start for _, start in columns[1:]] + [None]
        for line in lines:
            row = {name: line[start:end].strip() for (name, start), end in zip(columns, ends, strict=True)}
            rows[row.pop("NAME")] = row
    return rows


# ── killing ──────────────────────────────────────────────────────────────────────────────────────────


def needs_a_shell_on_the_node(cluster: Cluster) -> None:
    if cluster.provider == "named":
        pytest.skip("killing a process takes a shell on its node")


def kill_9(namespace: Namespace, pod: str) -> bool:
    """SIGKILL for the pod's process; False if it is dead already, or waits for its next start."""
    body = namespace.get("pod", pod)
    if "running" not in body["status"]["containerStatuses"][0]["state"]:
        return False
    try:
        kill_container(namespace, body)
    except ClusterProblem:
        return False  # the kubelet has not noticed yet that it is dead
    return True


@contextlib.contextmanager
def api_server_stopped(cluster: Cluster) -> Iterator[None]:
    """No API server within; afterwards it answers, and all nodes are ready."""
    try:
        # The kubelet runs what is in this folder. Once it is not to be started again, the process is killed.
        _on_control_plane(cluster, f"mv {_API_SERVER} {_API_SERVER_ASIDE}")
        silent_since_s = time.monotonic()
        while time.monotonic() - silent_since_s < 5:
            if _api_server_answers(cluster):
                silent_since_s = time.monotonic()
                _on_control_plane(cluster, _KILL_API_SERVER)
            time.sleep(_POLL_S)
        yield
    finally:
        _on_control_plane(cluster, f"test ! -e {_API_SERVER_ASIDE} || mv {_API_SERVER_ASIDE} {_API_SERVER}")
        message = "the API server did not come back"
        wait_for(lambda: _api_server_answers(cluster), message, AFTER_OUTAGE_TIMEOUT_S)
        kind.wait_until_ready(cluster.environment())


def _on_control_plane(cluster: Cluster, script: str) -> None:
    command = ["docker", "exec", f"{cluster.name}-control-plane", "sh", "-c", script]
    run(command, timeout_s=_NODE_TIMEOUT_S, env=cluster.environment())


def _api_server_answers(cluster: Cluster) -> bool:
    command = ["kubectl", "get", "--raw=/readyz", "--request-timeout=3s"]
    return succeeds(command, timeout_s=10, env=cluster.environment())


# ── the operator ─────────────────────────────────────────────────────────────────────────────────────


class Request(NamedTuple):
    """A right, or its use: as a rule of a role has it."""

    verb: str
    group: str
    resource: str
    """With the subresource behind a slash."""


class Operator:
    """An installation of the operator, in the namespace that it is deployed into."""

    def __init__(self, namespace: Namespace, notes: Path | None = None) -> None:
        self.namespace = namespace
        self.release = Release(namespace)
        self.requests: set[Request] = set()
        """What it has asked the API server for, as far as its logs have been read."""
        self.refusals: list[str] = []
        """Lines in which it tells that the API server has forbidden something."""
        self._read_until = datetime.now(UTC)
        self._notes = notes
        """Where all of this is noted, if several processes read the logs."""

    def install(self, values: Mapping[str, Any] | None = None) -> None:
        """Install the chart, with the requests in the operator's log, and wait until it leads."""
        # Nothing of an earlier run: an image that has kept its name would not be started, and a Lease not be created.
        self.remove()
        given = dict(values or {})
        given["operator"] = {"logLevel": "debug"} | given.get("operator", {})
        self.release.install(given)
        self.wait_until_it_leads()

    def remove(self) -> None:
        """Uninstall the chart, and delete the Lease, which is the operator's own."""
        if self.release.is_there():
            self.release.uninstall()
        self.namespace.kubectl("delete", f"lease/{NAME}", "--ignore-not-found", "--wait=false")
        self._wait_until_no_pod_is_left()

    def wait_until_it_leads(self, timeout_s: float = CONDITION_TIMEOUT_S) -> None:
        self.namespace.wait_for_rollout(NAME, timeout_s)
        wait_for(lambda: self.holder() is not None, "no operator took the Lease", timeout_s)

    def pods(self) -> list[dict[str, Any]]:
        return self.namespace.pods(OPERATOR_PODS)

    # ── who leads ────────────────────────────────────────────────────────────────────────────────────

    def holder(self) -> str | None:
        """Who has the Lease, in its own words."""
        found = json.loads(self.namespace.kubectl("get", "lease", NAME, "--ignore-not-found", "--output=json") or "{}")
        holder: str | None = found.get("spec", {}).get("holderIdentity") or None
        return holder

    def leader(self) -> str:
        """The name of the pod that leads."""

        def leading_pod() -> str | None:
            holder = self.holder()
            names = [pod["metadata"]["name"] for pod in self.pods()]
            return next((name for name in names if holder is not None and holder.startswith(name)), None)

        found: str = wait_for(leading_pod, "none of the operator's pods has the Lease")
        return found

    def wait_for_successor(self, deposed: str) -> str:
        """The pod that leads when ``deposed`` does not any more; that one is killed again if it gets the Lease back.

        A container that is killed once is back after a second, under another name but in the same pod.
        """

        def successor() -> str | None:
            name = self.leader()
            if name != deposed:
                return name
            kill_9(self.namespace, deposed)
            return None

        found: str = wait_for(successor, f"nobody took over from {deposed}")
        return found

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """No operator within."""
        self.read_logs()
        before = self.namespace.get("deployment", NAME)["spec"]["replicas"]
        self.namespace.kubectl("scale", f"deployment/{NAME}", "--replicas=0")
        try:
            self._wait_until_no_pod_is_left()
            yield
        finally:
            self.namespace.kubectl("scale", f"deployment/{NAME}", f"--replicas={before}")
            self.wait_until_it_leads()

    def _wait_until_no_pod_is_left(self) -> None:
        wait_for(
            lambda: not self.namespace.kubectl("get", "pods", f"--selector={OPERATOR_PODS}", "--output=name").strip(),
            "the operator's pods did not go",
        )

    # ── what it did ──────────────────────────────────────────────────────────────────────────────────

    def read_logs(self) -> None:
        """Take note of the requests since the last time. Logs are lost with their containers, so do it in time."""
        with self._noted():
            now = datetime.now(UTC)
            for pod in self.pods():
                statuses = pod["status"].get("containerStatuses") or [{"restartCount": 0}]
                for previous in ("true", "false") if statuses[0]["restartCount"] else ("false",):
                    self._read_log(pod["metadata"]["name"], previous)
            self._read_until = now

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Begin with what other processes have read, and add to it what is read within."""
        if self._notes is None:
            yield
            return
        with locked(self._notes.with_suffix(".lock"), "another process reads the operator's logs"):
            if self._notes.exists():
                requests, self.refusals, read_until = json.loads(self._notes.read_text())
                self.requests = {Request(*each) for each in requests}
                self._read_until = datetime.fromisoformat(read_until)
            yield
            self._notes.write_text(json.dumps([sorted(self.requests), self.refusals, self._read_until.isoformat()]))

    def _read_log(self, pod: str, previous: str) -> None:
        # A little more than is new: a line that is read twice changes nothing, and clocks differ.
        since = f"{self._read_until - timedelta(seconds=30):%Y-%m-%dT%H:%M:%SZ}"
        arguments = ("logs", pod, f"--since-time={since}", f"--previous={previous}")
        try:
            text = self.namespace.kubectl(*arguments, timeout_s=_LOG_TIMEOUT_S)
        except ClusterProblem:
            return  # it has no log yet, or none any more
        for line in text.splitlines():
            if request := request_in(line):
                self.requests.add(request)
            if "forbidden" in line.lower() and line not in self.refusals:
                self.refusals.append(line)

    def report(self) -> Iterator[tuple[str, str]]:
        """What one wants to know of it after a failure, titled."""
        for title, text in self.namespace.report():
            if title == "events" or title.startswith("log of"):
                yield title, text


def request_in(line: str) -> Request | None:
    """The request that a line of the operator's log tells of."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    if not isinstance(said, dict) or said.get("event") != "api request":
        return None
    subresource = f"/{said['subresource']}" if said.get("subresource") else ""
    return Request(said["verb"], said["group"], said["resource"] + subresource)
