"""The operator's own decision, fed as the operator feeds it."""

from __future__ import annotations

from typing import Final

from benchmarks.scaling.model import Pool, Verdict
from headrace_operator.observation import Flow, PoolHistory
from headrace_operator.scaling import Decision, Figures, LevelLoad, QueueLoad, decide

LOOKS_EVERY_S: Final = 2.0


class Policy:
    """One queue, one pool, and all that is remembered between two looks."""

    foresees = False

    def __init__(self) -> None:
        self.last: Decision | None = None
        self._flow = Flow()
        self._history = PoolHistory(0.0)

    def look(self, pool: Pool) -> Verdict:
        settings, now_s = pool.settings, pool.now_s
        replicas = len(pool.workers)
        self._flow.observe(
            waiting=pool.n_waiting,
            claimed=pool.begun,
            executing=pool.executing,
            runs=sum(pool.runs.values()),
            now_s=now_s,
        )
        idle = [each for each in pool.workers.values() if each.is_ready and not each.held]
        self._history.forget_all_but({str(each.name) for each in idle})
        decision = self.last = decide(
            Figures(
                queues=(self._load(pool),),
                replicas=replicas,
                busy=sum(each.held > 0 for each in pool.workers.values()),
                idle_s=tuple(
                    self._history.idle_s(str(each.name), each.idle_since_s, now_s - each.idle_since_s, now_s)
                    for each in idle
                ),
                concurrency=settings.concurrency,
                min_replicas=settings.min_replicas,
                max_replicas=settings.max_replicas,
                idle_seconds=settings.idle_seconds,
                backlog_per_worker=settings.backlog_per_worker,
                recent_need=self._history.recent_need(settings.idle_seconds, replicas, now_s),
            )
        )
        self._history.needed(decision.need, now_s, is_flowing=decision.is_flowing)
        self._history.stepped(decision.replicas - replicas, now_s)
        return Verdict(decision.replicas, decision.spare, decision.room, LOOKS_EVERY_S)

    def _load(self, pool: Pool) -> QueueLoad:
        standstill_s = self._flow.standstill_s(pool.now_s)
        target_s = pool.settings.target_s
        levels = tuple(
            LevelLoad(
                level=level,
                waiting=len(pool.waiting[level]),
                service_s=_service_s(pool.runs[level], pool.run_s[level], standstill_s),
                target_s=target_s,
            )
            for level in pool.levels
        )
        return QueueLoad(
            queue="simulated",
            levels=levels,
            executing=pool.executing,
            arriving_per_s=self._flow.arriving_per_s(pool.now_s),
            service_s=_service_s(sum(pool.runs.values()), sum(pool.run_s.values()), standstill_s),
            target_s=target_s,
        )


def _service_s(runs: int, run_s: float, standstill_s: float) -> float | None:
    """The mean, or how long tasks have been at work without any of them ending, if that is longer."""
    if not runs:
        return standstill_s or None
    return max(run_s / runs, standstill_s)
