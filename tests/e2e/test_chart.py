"""The chart, as people use it: install, try the README's queue, change the version under load, and remove it again.

All of it is done to the one release that this run's other tests use as well (`tests/support/operator_fixtures.py`), so
what changes it is marked `disruptive`, and leaves it as it was.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.cluster.lifecycle import Cluster
from tests.cluster.process import run
from tests.operator.scaling_verdict import Evidence, Moment, Story, judge
from tests.support import images
from tests.support.chart import Release
from tests.support.kubernetes import Namespace
from tests.support.operator import (
    Operator,
    Producer,
    apply,
    change,
    condition,
    producing_on,
    taskqueue,
    wait_for,
    wait_for_size,
    wait_until_ready,
    worker_pods,
    workerpool,
)
from tests.support.volume import CLAIM

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

README = (Path(__file__).parents[2] / "README.md").read_text()
CRDS = ["taskqueues.headrace.dev", "workerpools.headrace.dev"]


@pytest.fixture
def release(operator: Operator) -> Release:
    """The release of this run."""
    return operator.release


# ── beside other tests ───────────────────────────────────────────────────────────────────────────────


def the_readmes_objects() -> list[dict[str, Any]]:
    section = README.partition("## The same on Kubernetes")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    return list(yaml.safe_load_all(block))


def test_the_readmes_queue_and_pool_run_a_task(namespace: Namespace, release: Release):
    queue, pool = the_readmes_objects()
    assert (queue["kind"], pool["kind"]) == ("TaskQueue", "WorkerPool")
    # The image of the README is the reader's own. The Secret is where `redis.connectionNamespaces` would put it.
    pool["spec"] |= {"image": images.WORKER, "tasks": "headrace_samples.tasks:app"}
    assert queue["spec"]["redis"]["secretRef"]["name"] == release.connection_secret
    release.connect(namespace)
    apply(namespace, queue, pool)
    name = queue["metadata"]["name"]
    wait_until_ready(namespace, queues=[name])
    with producing_on(release, namespace, name) as producer:
        (record,) = producer.completed(producer.enqueue("nothing", [7]))
    assert record.result == 7
    assert (record.worker or "").startswith(f"{pool['metadata']['name']}-")


def test_helms_own_test_runs_a_task_and_leaves_nothing(release: Release):
    assert "Phase:          Succeeded" in release.test()
    namespace = release.namespace
    left = namespace.kubectl("get", "taskqueues,workerpools,pods", "--selector=app.kubernetes.io/component=test")
    assert left.strip() == ""


def test_every_object_is_let_in_by_an_api_server_without_a_warning(namespace: Namespace, release: Release):
    """As Argo CD applies them, into a namespace of the level `restricted`, which warns of pods in Deployments, too."""
    namespace.kubectl("label", "namespace", namespace.name, "pod-security.kubernetes.io/warn=restricted")
    values = {"redis": {"persistence": {"enabled": True}, "auth": {"password": "nobody-knows"}}}
    values |= {"networkPolicy": {"enabled": True}, "alerts": {"configMap": {"enabled": True}}}
    rendered = Release(namespace, "other").template(values)
    found = [each for each in yaml.safe_load_all(rendered) if each]
    assert {"Deployment", "StatefulSet", "Pod", "NetworkPolicy", "PodDisruptionBudget"} <= {
        each["kind"] for each in found
    }
    for each in found:
        each["metadata"].pop("namespace", None)
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
    flags = ("--server-side", "--force-conflicts", "--dry-run=server", "--warnings-as-errors")
    said = namespace.kubectl("apply", *flags, "--filename=-", stdin=listed)
    assert len(said.splitlines()) == len(found)


# ── a new version under load ─────────────────────────────────────────────────────────────────────────

NEXT = "next"
NEXT_WORKER = f"headrace-worker:{NEXT}"
TASKS = 5000
POOL, WORKERS, SLOTS = "steady", 4, 25
SHORT_S, LONG_S = 0.1, 6.0
TIMEOUT_S = 300.0


@pytest.fixture
def next_images(cluster: Cluster) -> None:
    """The operator's and the worker's image under another tag, in every node for pods."""
    if cluster.provider == "named":
        pytest.skip("bringing an image into the cluster takes kind")
    for image in (images.OPERATOR, images.WORKER):
        run(["docker", "tag", image, _next(image)], timeout_s=60, env=cluster.environment())
    images.bring(cluster, _next(images.OPERATOR), _next(images.WORKER))


def _next(image: str) -> str:
    return f"{image.partition(':')[0]}:{NEXT}"


@pytest.fixture
def loaded(namespace: Namespace, release: Release) -> Iterator[Producer]:
    """A pool that is about to be busy, and its producer."""
    release.connect(namespace)
    apply(
        namespace,
        taskqueue(
            "orders",
            redis={"secretRef": {"name": release.connection_secret}},
            retention={"maxEvents": 20 * TASKS},  # each of them is asked for at the end
        ),
        # The grace is much shorter than a long task: a busy worker that were asked to stop would hand it back.
        workerpool(POOL, ["orders"], replicas=WORKERS, concurrency=SLOTS, graceSeconds=1),
    )
    wait_until_ready(namespace, queues=["orders"], pools=[POOL])
    with producing_on(release, namespace, "orders") as producer:
        yield producer


@pytest.mark.disruptive
def test_an_upgrade_and_its_rollback_lose_and_interrupt_no_task(
    namespace: Namespace, operator: Operator, loaded: Producer, next_images: None
):
    release = operator.release
    before = operator_image(operator)
    url = release.redis_url()
    sent: dict[str, float] = {}
    operator.read_logs()
    sent |= enqueue(loaded)
    try:
        release.upgrade({"operator": {"image": {"tag": NEXT}}})
        change_the_workers(namespace, loaded, NEXT_WORKER)
        assert operator_image(operator) == _next(images.OPERATOR)
        assert release.redis_url() == url

        sent |= enqueue(loaded)
    finally:
        release.rollback()
    change_the_workers(namespace, loaded, images.WORKER)
    assert operator_image(operator) == before
    assert release.redis_url() == url
    operator.wait_until_it_leads()

    wait_for(lambda: loaded.stats().finished == len(sent), "not all tasks were finished", TIMEOUT_S)
    verdict = judge(Evidence(stories_of(loaded, sent)))
    assert verdict.findings == []
    assert verdict.completed == len(sent) == 2 * TASKS
    assert verdict.given_back_by_deleted == 0


def enqueue(producer: Producer) -> dict[str, float]:
    """Short and long tasks all mixed up; how long each of them takes. Not before every slot has one."""
    rng = random.Random(7)
    seconds = [LONG_S if rng.random() < 0.1 else SHORT_S for _ in range(TASKS)]
    ids = producer.enqueue("rest", *([each] for each in seconds))
    producer.wait_until_executing(WORKERS * SLOTS)
    return dict(zip(ids, seconds, strict=True))


def change_the_workers(namespace: Namespace, producer: Producer, image: str) -> None:
    """Until there are none but those of the image, while more waits than they can have begun."""
    change(namespace, f"workerpool/{POOL}", image=image)

    def all_have_changed() -> bool:
        found = {pod["spec"]["containers"][0]["image"] for pod in worker_pods(namespace, POOL)}
        return found == {image}

    wait_for(all_have_changed, f"the pool did not come to {image}", TIMEOUT_S)
    wait_for_size(namespace, POOL, WORKERS)
    assert producer.stats().executing, "it was over too soon: nothing was in flight any more"


def operator_image(operator: Operator) -> str:
    """The image of the operator's pods, of which there is but one."""
    (image,) = {pod["spec"]["containers"][0]["image"] for pod in operator.pods()}
    return str(image)


def stories_of(producer: Producer, sent: dict[str, float]) -> list[Story]:
    """What happened to each task, by the queue's events, and what has become of it."""
    moments: dict[str, list[Moment]] = {task_id: [] for task_id in sent}
    for at_s, (task_id, what, _level, attempt, worker, detail) in producer.events():
        if task_id in moments:
            moments[task_id].append(Moment(at_s, what, worker, attempt, detail))
    records = {record.task_id: record for record in producer.records(sent)}
    return [
        Story(task_id, sent[task_id], records[task_id].state.value, records[task_id].retry_count, tuple(seen))
        for task_id, seen in moments.items()
    ]


# ── removing it ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.disruptive
def test_an_uninstalled_chart_leaves_crds_queues_and_tasks_and_can_be_installed_again(
    namespace: Namespace, operator: Operator, release: Release
):
    redis = {"secretRef": {"name": release.connection_secret}}
    release.connect(namespace)
    apply(namespace, taskqueue("orders", redis=redis))
    wait_until_ready(namespace, queues=["orders"])
    with producing_on(release, namespace, "orders") as producer:
        ids = producer.enqueue("nothing", *([number] for number in range(100)))
    operator.read_logs()
    # Who keeps the volume and wants the login to stay as well says so: the Secret goes with the release.
    password = urlsplit(release.redis_url()).password
    values = release.values()
    values["redis"]["auth"] = {"password": password}
    try:
        said = release.uninstall()
        nothing_is_left_but_crds_and_data(namespace, release, said)
        assert namespace.get("taskqueue", "orders")["spec"]["redis"]["secretRef"] == redis["secretRef"]
    finally:
        release.install(values)
    operator.wait_until_it_leads()
    apply(namespace, workerpool("steady", ["orders"]))
    with producing_on(release, namespace, "orders") as producer:
        records = producer.completed(ids)
    assert [record.result for record in records] == list(range(100))


def nothing_is_left_but_crds_and_data(namespace: Namespace, release: Release, said: str) -> None:
    for name in CRDS:
        assert f"[CustomResourceDefinition] {name}" in said
        assert condition(namespace.get("customresourcedefinition", name), "Established") is not None
    at_home = release.namespace
    ours = f"--selector=app.kubernetes.io/instance={release.name}"
    kinds = "deployments,statefulsets,services,secrets,serviceaccounts,roles,rolebindings,poddisruptionbudgets"
    left = at_home.kubectl("get", f"{kinds},clusterroles,clusterrolebindings", ours, "--output=name")
    assert left.strip() == ""
    assert at_home.get("pvc", CLAIM)["status"]["phase"] == "Bound"
