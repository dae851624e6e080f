"""Custom resources as typed values.

The schemas in ``crds/`` refuse most mistakes before they are stored. What is read here is checked all the same: a
resource may have been stored under an older schema, and one that cannot be read must end as a condition on itself, not
as an error that stops the work on all others. So reading raises `InvalidResource` and nothing else.

What belongs here: the two kinds as a whole, and what they have to say about each other. Their larger parts are read by
`queue_config`, `redis_reference` and `pod_template`, all by means of `reading`.

Fields that are not known are passed over, because a newer schema may have them; only within a worker's template are
they refused, since whatever stands there ends up in a pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from headrace.model.config import MAX_DURATION_S, MAX_LEVELS, QueueConfig

from .pod_template import read_template
from .queue_config import read_queue_config
from .reading import InvalidResource, Part, Ref, object_name, own_name, read_identity, shown
from .redis_reference import RedisReference, read_redis_reference, redis_difference
from .scaling import StepLimit

API_VERSION: Final = "headrace.dev/v1alpha1"
POOL_LABEL: Final = "headrace.dev/pool"
REVISION_LABEL: Final = "headrace.dev/revision"

MAX_POOL_NAME_CHARS: Final = 37
"""A pod's name adds the revision and two suffixes of Kubernetes, and must still fit into a hostname."""
MAX_QUEUES: Final = 16
MAX_CONCURRENCY: Final = 1_000
MAX_CAPABILITIES: Final = 16
MAX_REPLICAS: Final = 1_000
MAX_GRACE_SECONDS: Final = 86_400
MAX_WEIGHT: Final = 1_000
MAX_BACKLOG_PER_WORKER: Final = 1_000_000
MAX_STEP_SECONDS: Final = 86_400

DeletionPolicy = Literal["Retain", "Purge"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]

_DELETION_POLICIES: Final[dict[str, DeletionPolicy]] = {"Retain": "Retain", "Purge": "Purge"}
_PULL_POLICIES: Final[dict[str, PullPolicy]] = {"Always": "Always", "IfNotPresent": "IfNotPresent", "Never": "Never"}

_TASKS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True, slots=True)
class TaskQueueResource:
    """A TaskQueue, checked: `config` is what is published to Redis."""

    ref: Ref
    generation: int
    created_at: datetime
    tenant: str
    queue_name: str
    """What the queue is called in Redis; the resource itself may be called otherwise."""
    config: QueueConfig
    redis: RedisReference
    paused: bool | None
    """None: a pause that somebody made by other means is left alone."""
    deletion_policy: DeletionPolicy

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> TaskQueueResource:
        """Read a manifest as the API server returns it; raises `InvalidResource`, and nothing else."""
        whole = Part(body, "")
        identity = read_identity(whole)
        spec = whole.part("spec")
        queue, tenant = spec.text("queue"), spec.text("tenant")
        queue_field = "metadata.name" if queue is None else "spec.queue"
        queue_name = own_name(queue_field, identity.ref.name if queue is None else queue)
        return cls(
            ref=identity.ref,
            generation=identity.generation,
            created_at=identity.created_at,
            tenant=own_name("spec.tenant", identity.ref.namespace if tenant is None else tenant),
            queue_name=queue_name,
            config=read_queue_config(spec, queue_name, queue_field),
            redis=read_redis_reference(spec.part("redis")),
            paused=spec.flag("paused"),
            deletion_policy=spec.choice("deletionPolicy", _DELETION_POLICIES) or "Retain",
        )


@dataclass(frozen=True, slots=True)
class WorkerPoolResource:
    """A WorkerPool, checked."""

    ref: Ref
    generation: int
    created_at: datetime
    queues: tuple[str, ...]
    """Names of TaskQueues, not of queues in Redis."""
    image: str
    image_pull_policy: PullPolicy
    tasks: str
    concurrency: int
    capabilities: tuple[str, ...]
    min_replicas: int
    max_replicas: int
    replicas: int | None
    """As somebody fixed it, perhaps outside of the bounds: see `within_bounds`."""
    idle_seconds: float
    target_drain_seconds: float
    level_targets_s: Mapping[str, float] = field(hash=False)
    """By level, where it differs from ``target_drain_seconds``."""
    backlog_per_worker: float
    weight: int
    """Its part of a queue that other pools serve as well."""
    scale_up_limit: StepLimit | None
    scale_down_limit: StepLimit | None
    grace_seconds: int | None
    """None: derived from the queues."""
    paused: bool
    template: Mapping[str, Any] = field(hash=False)
    """Nothing in it but what the contract of a worker's template allows, so it can be put into a pod."""

    def within_bounds(self, replicas: int) -> int:
        """The nearest number of replicas that the pool may have."""
        return min(max(replicas, self.min_replicas), self.max_replicas)

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> WorkerPoolResource:
        """Read a manifest as the API server returns it; raises `InvalidResource`, and nothing else."""
        whole = Part(body, "")
        identity = read_identity(whole)
        if len(identity.ref.name) > MAX_POOL_NAME_CHARS:
            raise InvalidResource(
                "metadata.name",
                f"is {len(identity.ref.name)} characters long; at most {MAX_POOL_NAME_CHARS} are allowed",
            )
        if "." in identity.ref.name:
            raise InvalidResource("metadata.name", "becomes part of host names and cannot have dots; write '-' instead")
        spec = whole.part("spec")
        minimum = spec.whole("minReplicas", 0, MAX_REPLICAS) or 0
        maximum = spec.whole("maxReplicas", 0, MAX_REPLICAS)
        maximum = 10 if maximum is None else maximum
        if minimum > maximum:
            raise InvalidResource(
                "spec.minReplicas", f"is {minimum}, above maxReplicas ({maximum}); change one of them"
            )
        concurrency = spec.whole("concurrency", 1, MAX_CONCURRENCY) or 5
        return cls(
            ref=identity.ref,
            generation=identity.generation,
            created_at=identity.created_at,
            queues=_queue_names(spec),
            image=_image(spec),
            image_pull_policy=spec.choice("imagePullPolicy", _PULL_POLICIES) or "IfNotPresent",
            tasks=_tasks(spec),
            concurrency=concurrency,
            capabilities=_capabilities(spec),
            min_replicas=minimum,
            max_replicas=maximum,
            replicas=spec.whole("replicas", 0, MAX_REPLICAS),
            idle_seconds=_up_to(spec, "idleSeconds", MAX_DURATION_S, 120.0, may_be_zero=True),
            target_drain_seconds=_up_to(spec, "targetDrainSeconds", MAX_DURATION_S, 30.0),
            level_targets_s=_level_targets(spec),
            backlog_per_worker=_up_to(spec, "backlogPerWorker", MAX_BACKLOG_PER_WORKER, 10.0 * concurrency),
            weight=spec.whole("weight", 1, MAX_WEIGHT) or 1,
            scale_up_limit=_step_limit(spec, "scaleUpLimit"),
            scale_down_limit=_step_limit(spec, "scaleDownLimit"),
            grace_seconds=spec.whole("graceSeconds", 0, MAX_GRACE_SECONDS),
            paused=spec.flag("paused") or False,
            template=read_template(spec.part("template")),
        )


def common_backend(pool: WorkerPoolResource, queues: Sequence[TaskQueueResource]) -> tuple[str, RedisReference]:
    """The tenant and the Redis of the pool's queues. A worker has one of each, so they must be the same for all."""
    by_name = {queue.ref.name: queue for queue in queues}
    for index, name in enumerate(pool.queues):
        if name not in by_name:
            raise InvalidResource(
                f"spec.queues[{index}]", f"TaskQueue {name} does not exist; create it, or correct the name"
            )
    first, *others = (by_name[name] for name in pool.queues)
    for other in others:
        difference = _difference(first, other)
        if difference is not None:
            raise InvalidResource(
                "spec.queues",
                f"TaskQueues {first.ref.name} and {other.ref.name} differ in {difference}; "
                "a worker has one connection, so give each of them a pool of its own",
            )
    names: dict[str, str] = {}
    for queue in (first, *others):
        if queue.queue_name in names:
            raise InvalidResource(
                "spec.queues",
                f"TaskQueues {names[queue.queue_name]} and {queue.ref.name} are both "
                f"queue {queue.queue_name}; keep one",
            )
        names[queue.queue_name] = queue.ref.name
    return first.tenant, first.redis


def _difference(one: TaskQueueResource, other: TaskQueueResource) -> str | None:
    if one.tenant != other.tenant:
        return f"spec.tenant ({one.tenant}, {other.tenant})"
    return redis_difference(one.redis, other.redis)


def _queue_names(spec: Part) -> tuple[str, ...]:
    names = spec.required("queues", spec.texts("queues"))
    if not 1 <= len(names) <= MAX_QUEUES:
        raise InvalidResource("spec.queues", f"has {len(names)} names; a pool serves 1 to {MAX_QUEUES} TaskQueues")
    for index, name in enumerate(names):
        object_name(f"spec.queues[{index}]", name)
    _refuse_twice("spec.queues", names)
    return tuple(names)


def _refuse_twice(where: str, names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidResource(f"{where}[{index}]", f"{shown(name)} appears twice; keep one")


def _image(spec: Part) -> str:
    image = spec.required_text("image")
    if any(character.isspace() for character in image):
        raise InvalidResource("spec.image", "has a blank in it; write it as in shop/worker:1.0")
    return image


def _tasks(spec: Part) -> str:
    tasks = spec.required_text("tasks")
    if not _TASKS.fullmatch(tasks):
        raise InvalidResource("spec.tasks", f"{shown(tasks)} is not module:attribute; write it as in shop.tasks:app")
    return tasks


def _capabilities(spec: Part) -> tuple[str, ...]:
    names = spec.texts("capabilities") or []
    if len(names) > MAX_CAPABILITIES:
        raise InvalidResource("spec.capabilities", f"has {len(names)} names; a worker has at most {MAX_CAPABILITIES}")
    for index, name in enumerate(names):
        own_name(f"spec.capabilities[{index}]", name)
    _refuse_twice("spec.capabilities", names)
    return tuple(names)


def _level_targets(spec: Part) -> dict[str, float]:
    entries = spec.parts("levelTargets") or []
    if len(entries) > MAX_LEVELS:
        raise InvalidResource("spec.levelTargets", f"has {len(entries)} entries; at most {MAX_LEVELS} are allowed")
    targets_s: dict[str, float] = {}
    for entry in entries:
        level = own_name(entry.at("level"), entry.required_text("level"))
        if level in targets_s:
            raise InvalidResource(entry.at("level"), f"{shown(level)} appears twice; keep one")
        targets_s[level] = entry.required("targetDrainSeconds", _positive(entry, "targetDrainSeconds", MAX_DURATION_S))
    return targets_s


def _step_limit(spec: Part, key: str) -> StepLimit | None:
    if key not in spec:
        return None
    limit = spec.part(key)
    pods = limit.required("pods", limit.whole("pods", 1, MAX_REPLICAS))
    return StepLimit(pods, _up_to(limit, "seconds", MAX_STEP_SECONDS, 60.0))


def _up_to(part: Part, key: str, most: float, default: float, *, may_be_zero: bool = False) -> float:
    value = _positive(part, key, most, may_be_zero=may_be_zero)
    return default if value is None else value


def _positive(part: Part, key: str, most: float, *, may_be_zero: bool = False) -> float | None:
    value = part.number(key)
    if value is not None and (value < 0 or value > most or (value == 0 and not may_be_zero)):
        least = "at least" if may_be_zero else "above"
        raise InvalidResource(part.at(key), f"is {value:g}; it must be {least} 0 and at most {most:.10g}")
    return value
