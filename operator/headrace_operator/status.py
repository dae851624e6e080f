"""What a resource says about itself.

A status is built as a whole from what was found and from the old one, and is written only when it differs. It is meant
to be sent as a merge patch, in which None removes a field. What others have written into a status, and condition types
that are not known here, are kept.

An outage is never shown as zero: figures that could not be read stay what they were, and a condition says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from headrace.model.config import QueueConfig

from .resources import POOL_LABEL, TaskQueueResource, WorkerPoolResource
from .scaling import Decision

MAX_MESSAGE_CHARS: Final = 1024
"""Kubernetes takes 32,768; but nobody reads that much, and what a container said may be of any length."""

MAX_RECENT_DECISIONS: Final = 10

_GOOD_WHEN_TRUE: Final = frozenset({"Ready", "BackendReachable", "ScalingActive"})
_BAD_WHEN_TRUE: Final = frozenset({"Starving", "ScalingLimited"})
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_CONDITION_STATUSES: Final[dict[bool | None, Literal["True", "False", "Unknown"]]] = {
    True: "True",
    False: "False",
    None: "Unknown",
}


def rfc3339(time: datetime) -> str:
    """In UTC, whole seconds, as Kubernetes writes times."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time_text(at_s: float) -> str:
    return rfc3339(datetime.fromtimestamp(at_s, UTC))


# ── conditions ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Condition:
    """One finding about a resource; when it became so is added by `merge_conditions`."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def condition(type: str, status: bool | None, reason: str, message: str) -> Condition:
    """A condition; None stands for Unknown. The message says what to do next, if there is anything to do."""
    if not _REASON.fullmatch(reason):
        raise ValueError(f"reason: {reason!r} is not CamelCase; the API server would refuse the whole status")
    return Condition(type, _CONDITION_STATUSES[status], reason, _shortened(message, MAX_MESSAGE_CHARS))


def merge_conditions(
    old: Sequence[Mapping[str, Any]], new: Sequence[Condition], generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The old conditions with the new ones in their places.

    A time of transition is kept while the status stays the same, even if reason or message change.
    """
    merged: dict[str, dict[str, Any]] = {}
    for entry in _objects(old):
        if isinstance(entry.get("type"), str):
            merged.setdefault(entry["type"], dict(entry))
    for found in new:
        before = merged.get(found.type, {})
        is_same = before.get("status") == found.status and bool(before.get("lastTransitionTime"))
        merged[found.type] = {
            "type": found.type,
            "status": found.status,
            "reason": found.reason,
            "message": found.message,
            "lastTransitionTime": before["lastTransitionTime"] if is_same else rfc3339(now),
            "observedGeneration": generation,
        }
    return list(merged.values())


def is_bad(condition: Mapping[str, Any]) -> bool:
    """Whether somebody should hear of it: it is not as it should be."""
    if condition.get("type") in _GOOD_WHEN_TRUE:
        return bool(condition.get("status") == "False")
    return condition.get("type") in _BAD_WHEN_TRUE and condition.get("status") == "True"


def changed(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    """Whether the new status has to be written: whether it would change anything as a merge patch."""
    before = old or {}
    return any(before.get(key) != value for key, value in new.items())


# ── TaskQueue ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """A queue at one instant."""

    levels: tuple[tuple[str, int, float | None], ...]
    """Name, depth and since when the oldest task waits (in seconds since 1970), highest level first."""
    executing: int
    delayed: int
    dead: int
    workers_active: int
    workers_draining: int
    workers_dead: int
    completed_last_minute: int
    failed_last_minute: int
    promoted: int
    paused: bool


def taskqueue_status(
    old: Mapping[str, Any] | None,
    generation: int,
    figures: QueueFigures | None,
    conditions: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The whole status of a TaskQueue, with conditions as `merge_conditions` returns them.

    Of a resource that cannot be read nothing is needed but its generation. Without figures the last ones are kept.
    """
    return {
        **(old or {}),
        **({} if figures is None else _queue_figures(figures)),
        "observedGeneration": generation,
        "conditions": list(conditions),
    }


def _queue_figures(figures: QueueFigures) -> dict[str, Any]:
    oldest_at_s = min((at_s for _, _, at_s in figures.levels if at_s is not None), default=None)
    return {
        "depth": sum(depth for _, depth, _ in figures.levels),
        "executing": figures.executing,
        "delayed": figures.delayed,
        "dead": figures.dead,
        "oldestTime": None if oldest_at_s is None else _time_text(oldest_at_s),
        "levels": [{"name": name, "depth": depth, **_oldest(at_s)} for name, depth, at_s in figures.levels],
        "workers": {
            "active": figures.workers_active,
            "draining": figures.workers_draining,
            "dead": figures.workers_dead,
        },
        "completedPerMinute": figures.completed_last_minute,
        "failedPerMinute": figures.failed_last_minute,
        "promoted": figures.promoted,
        "paused": figures.paused,
    }


def _oldest(at_s: float | None) -> dict[str, str]:
    """An empty level has no oldest task, rather than one of no age. Lists are replaced whole, so it is left out."""
    return {} if at_s is None else {"oldestTime": _time_text(at_s)}


def wait_bounds_s(config: QueueConfig) -> dict[str, float]:
    """How long a task may wait, by level, before promotion has brought it as far up as it goes.

    On each step it waits for its threshold, and then for the next round of promotions. A level without a promotion,
    such as the highest, has no bound: how long a task waits there is a matter of how many workers there are.
    """
    steps = {rule.source: rule for rule in config.promotion_rules}
    bounds_s: dict[str, float] = {}
    for level in config.level_names():  # a promotion leads upward, so its target has been seen before
        if level in steps:
            rule = steps[level]
            bounds_s[level] = rule.after_s + config.promotion_interval_s + bounds_s.get(rule.target, 0.0)
    return bounds_s


def starving(resource: TaskQueueResource, figures: QueueFigures, now_s: float) -> Condition:
    """Whether a task has waited longer than promotion promises. ``now_s`` is by the clock the figures are by."""
    bounds_s = wait_bounds_s(resource.config)
    if not bounds_s:
        message = "No level has promoteAfterSeconds, so no wait is bounded; set it on the lower levels to bound it."
        return condition("Starving", False, "NoPromotion", message)
    late = [
        (level, at_s)
        for level, _, at_s in figures.levels
        if at_s is not None and level in bounds_s and now_s - at_s > bounds_s[level]
    ]
    if not late:
        promised = ", ".join(f"{level} {bound_s:g} s" for level, bound_s in bounds_s.items())
        return condition("Starving", False, "WithinBounds", f"No task has waited longer than promised ({promised}).")
    level, at_s = min(late, key=lambda found: found[1])
    where = f"spec.levels[{resource.config.level_names().index(level)}]"
    # Since when, and not for how long: the message shall not change with every look.
    message = (
        f"A task on level {level} has waited since {_time_text(at_s)}, longer than the promised {bounds_s[level]:g} s; "
        f"more come than promotion moves. Raise promoteBatch of {where}, lower spec.promotion.intervalSeconds, "
        "or add workers."
    )
    return condition("Starving", True, "WaitedTooLong", message)


# ── WorkerPool ───────────────────────────────────────────────────────────────────────────────────────


def workerpool_status(
    resource: WorkerPoolResource,
    old: Mapping[str, Any] | None,
    *,
    desired: int,
    revision: str,
    revisions: Mapping[str, tuple[int, int]],
    busy: int | None,
    idle: int | None,
    draining: int | None,
    conditions: Sequence[Mapping[str, Any]],
    decisions: Mapping[str, Any] = _NOTHING,
) -> dict[str, Any]:
    """The whole status of a WorkerPool, with conditions as `merge_conditions` returns them.

    ``revisions`` has how many pods there are of each, and how many of those are ready. Who is busy is known by Redis
    only: None keeps the last number. ``decisions`` is what `decision_status` returns; without it, the old ones stay.
    """
    told_by_redis = {"busy": busy, "idle": idle, "draining": draining}
    return {
        **(old or {}),
        **{key: count for key, count in told_by_redis.items() if count is not None},
        **decisions,
        "observedGeneration": resource.generation,
        "conditions": list(conditions),
        "desiredReplicas": desired,
        "replicas": sum(replicas for replicas, _ in revisions.values()),
        "readyReplicas": sum(ready for _, ready in revisions.values()),
        "selector": f"{POOL_LABEL}={resource.ref.name}",
        "revision": revision,
        "revisions": [
            {"revision": name, "replicas": replicas, "ready": ready}
            for name, (replicas, ready) in sorted(revisions.items())
        ],
    }


def decision_status(old: Mapping[str, Any] | None, decision: Decision, now: datetime) -> dict[str, Any]:
    """The fields of a WorkerPool's status that tell of decisions: the last one, and those that changed something.

    A decision is made every second, and most say what the one before said. Only one that says something new is put
    down: another number, or another reason. One that asks again for a change that is still under way does not.
    """
    last = _inner(old or {}, "lastDecision")
    recent = _objects((old or {}).get("recentDecisions"))
    before, after = decision.figures.replicas, decision.replicas
    step = {"from": before, "replicas": after}
    is_change = before != after and any(last.get(key) != value for key, value in step.items())
    if last and not is_change and last.get("reason") == decision.reason:
        return {"lastDecision": last, "recentDecisions": recent}
    reason, message = decision.reason.value, _shortened(decision.message, MAX_MESSAGE_CHARS)
    told = {"time": rfc3339(now), **step, "reason": reason, "message": message}
    return {
        # All of its inputs are there, also those that are None: as a merge patch, they remove what stood there.
        "lastDecision": told | {"need": decision.need, "inputs": msgspec.to_builtins(decision.figures)},
        "recentDecisions": [told, *recent][:MAX_RECENT_DECISIONS] if is_change else recent,
    }


# ── why workers do not run ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pool's workers do not run, and what to do about it: reason and message of a condition."""

    reason: str
    message: str


_PULL_REASONS: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
)
_START_REASONS: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_SAID_CHARS: Final = 300


def pod_problem(deployments: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> Problem | None:
    """The problem to report first, from the pool's Deployments and pods as the API server returns them.

    What a person can mend in the pool comes before what the cluster lacks. Pods that are on their way out are passed
    over. Pods are looked at by name, so that the same one is named again while nothing changes.
    """
    present = [pod for pod in pods if not _inner(pod, "metadata").get("deletionTimestamp")]
    present.sort(key=_name)
    for look in (_image_problem, _start_problem, _crash_problem):
        for pod in present:
            for container in _objects(_inner(pod, "status").get("containerStatuses")):
                problem = look(pod, container)
                if problem is not None:
                    return problem
    for deployment in sorted(deployments, key=_name):
        problem = _refusal(deployment)
        if problem is not None:
            return problem
    return next((problem for problem in map(_scheduling_problem, present) if problem is not None), None)


def _image_problem(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Problem | None:
    waiting = _inner(container, "state", "waiting")
    if waiting.get("reason") not in _PULL_REASONS:
        return None
    return Problem(
        "ImageNotPulled",
        f"Pod {_name(pod)} cannot get image {container.get('image')} ({_said(waiting)}). "
        "Correct spec.image, or name the registry's Secret in spec.template.imagePullSecrets.",
    )


def _start_problem(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Problem | None:
    waiting = _inner(container, "state", "waiting")
    if waiting.get("reason") not in _START_REASONS:
        return None
    return Problem(
        "ContainerNotStarted",
        f"Pod {_name(pod)} cannot start its container ({_said(waiting)}). "
        "Create what is missing, correct spec.template, or build the image to run as a user other than root.",
    )


def _crash_problem(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Problem | None:
    end = _last_crash(pod, container)
    if end is None:
        return None
    if end.get("reason") == "OOMKilled":
        return Problem(
            "OutOfMemory",
            f"The worker in pod {_name(pod)} needed more memory than it may have. "
            "Raise spec.template.resources.limits.memory, or lower spec.concurrency.",
        )
    return Problem(
        "WorkerCrashes",
        f"The worker in pod {_name(pod)} ended with exit code {end.get('exitCode')}: {_last_line(end.get('message'))}. "
        "Correct spec.tasks, spec.image or spec.template; its log has the rest.",
    )


def _last_crash(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How the container ended, unless it has been well since."""
    ended = _inner(container, "state", "terminated")
    if ended:
        return ended if ended.get("exitCode") else None
    before = _inner(container, "lastState", "terminated")
    if not before.get("exitCode"):
        return None
    if _inner(container, "state", "waiting").get("reason") == "CrashLoopBackOff":
        return before
    # Running again for a moment. It counts as crashing until it is ready once; a worker that was ready in this run and
    # is not any more has been put aside, which is no crash.
    started_at = _inner(container, "state", "running").get("startedAt")
    ready = _condition_of(pod, "Ready")
    if started_at and ready.get("status") == "False" and str(ready.get("lastTransitionTime", "")) <= str(started_at):
        return before
    return None


def _refusal(deployment: Mapping[str, Any]) -> Problem | None:
    failure = _condition_of(deployment, "ReplicaFailure")
    if failure.get("status") != "True":
        return None
    said = _shortened(" ".join(str(failure.get("message", "")).split()), _SAID_CHARS)
    if "exceeded quota" in said:
        return Problem(
            "QuotaExceeded",
            f"The namespace's quota allows no further pod ({said}). Raise the quota, or lower spec.maxReplicas "
            "or spec.template.resources.",
        )
    return Problem(
        "PodsRefused", f"The API server refuses the pool's pods ({said}). Correct spec.template, or what refuses them."
    )


def _scheduling_problem(pod: Mapping[str, Any]) -> Problem | None:
    scheduled = _condition_of(pod, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return None
    return Problem(
        "Unschedulable",
        f"No node takes pod {_name(pod)} ({_said(scheduled)}). Add nodes, or lower spec.template.resources "
        "or change spec.template.nodeSelector or tolerations.",
    )


# ── reading what the API server returned ─────────────────────────────────────────────────────────────


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, (list, tuple)) else []


def _inner(value: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for key in path:
        inner = value.get(key)
        value = inner if isinstance(inner, Mapping) else {}
    return value


def _name(resource: Mapping[str, Any]) -> str:
    return str(_inner(resource, "metadata").get("name", ""))


def _condition_of(resource: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    found = (entry for entry in _objects(_inner(resource, "status").get("conditions")) if entry.get("type") == type)
    return next(found, {})


def _said(state: Mapping[str, Any]) -> str:
    """Kubernetes' own words, in one line."""
    message = " ".join(str(state.get("message") or "").split())
    return _shortened(f"{state.get('reason')}: {message}" if message else str(state.get("reason")), _SAID_CHARS)


def _last_line(message: object) -> str:
    """The last line is where Python names the exception."""
    lines = [line.strip() for line in str(message or "").splitlines() if line.strip()]
    printable = "".join(character for character in lines[-1] if character.isprintable()) if lines else ""
    return _shortened(printable.rstrip("."), _SAID_CHARS) or "it said nothing"


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
