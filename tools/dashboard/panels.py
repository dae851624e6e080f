"""What the dashboard shows: each row with its panels, each panel with its queries.

Only the leading operator has figures of queues and pools, and while another replica takes over two may have them for
one scrape: gauges are aggregated by ``max``, counters by the ``sum`` of their rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

_QUEUE: Final = 'namespace=~"$namespace", queue=~"$queue"'
_POOL: Final = 'namespace=~"$namespace", pool=~"$pool"'
_OVER: Final = "[$__rate_interval]"


@dataclass(frozen=True)
class Panel:
    """One panel: what is asked for, by the name of its line, and how it is shown."""

    title: str
    about: str
    queries: Sequence[tuple[str, str]]
    """The legend and the query. In a legend, ``{{label}}`` stands for the label's value."""
    unit: str = "short"
    width: int = 8
    height: int = 8
    kind: Literal["timeseries", "stat"] = "timeseries"
    style: Literal["line", "stack", "bars"] = "line"
    right: str | None = None
    """The line that has an axis of its own, on the right."""
    bad_from: float | None = None
    """A stat is red from this value on."""


def _quantiles(metric: str, where: str, *quantiles: float) -> list[tuple[str, str]]:
    rates = f"sum by (le) (rate({metric}_bucket{{{where}}}{_OVER}))"
    return [(f"p{quantile * 100:g}", f"histogram_quantile({quantile:g}, {rates})") for quantile in quantiles]


def _number(title: str, about: str, query: str, *, bad_from: float | None = None) -> Panel:
    return Panel(title, about, [("", query)], width=4, height=4, kind="stat", bad_from=bad_from)


ROWS: Final[Sequence[tuple[str, Sequence[Panel]]]] = (
    (
        "Queues",
        (
            _number(
                "Waiting",
                "Tasks that wait for a worker.",
                f"sum(max by (namespace, queue, priority) (headrace_queue_depth{{{_QUEUE}}}))",
            ),
            _number(
                "Executing",
                "Tasks that a worker holds.",
                f'sum(max by (namespace, queue) (headrace_task_state_total{{{_QUEUE}, status="executing"}}))',
            ),
            _number(
                "Dead letters",
                "Tasks that are set aside, to be looked at and replayed.",
                f'sum(max by (namespace, queue) (headrace_task_state_total{{{_QUEUE}, status="dead_letter"}}))',
                bad_from=1,
            ),
            _number(
                "Active workers",
                "Workers that take tasks; one that serves several queues counts for each.",
                f'sum(max by (namespace, queue) (headrace_workers_total{{{_QUEUE}, status="active"}}))',
            ),
            _number(
                "Paused queues",
                "Queues of which nothing is handed out.",
                f"sum(max by (namespace, queue) (headrace_queue_paused{{{_QUEUE}}}))",
                bad_from=1,
            ),
            _number(
                "Redis unreachable",
                "Queues whose Redis does not answer the operator. Their other figures are left out.",
                f"sum(1 - max by (namespace, queue) (headrace_queue_backend_reachable{{{_QUEUE}}}))",
                bad_from=1,
            ),
            Panel(
                "Depth",
                "Tasks that wait, by queue and priority.",
                [
                    (
                        "{{namespace}}/{{queue}} {{priority}}",
                        f"max by (namespace, queue, priority) (headrace_queue_depth{{{_QUEUE}}})",
                    )
                ],
                style="stack",
            ),
            Panel(
                "Oldest task",
                "For how long the oldest waiting task has waited.",
                [
                    (
                        "{{namespace}}/{{queue}} {{priority}}",
                        f"max by (namespace, queue, priority) (headrace_queue_oldest_age_seconds{{{_QUEUE}}})",
                    )
                ],
                unit="s",
            ),
            Panel(
                "Age when claimed",
                "How long tasks had waited when a worker took them.",
                _quantiles("headrace_queue_age_seconds", _QUEUE, 0.5, 0.95, 0.99),
                unit="s",
            ),
            Panel(
                "Throughput",
                "Tasks per second that came, and that were completed.",
                [
                    (
                        "{{namespace}}/{{queue}} completed",
                        f"sum by (namespace, queue) (rate(headrace_tasks_completed_total{{{_QUEUE}}}{_OVER}))",
                    ),
                    (
                        "{{namespace}}/{{queue}} enqueued",
                        f"sum by (namespace, queue) (rate(headrace_tasks_enqueued_total{{{_QUEUE}}}{_OVER}))",
                    ),
                ],
                unit="ops",
            ),
            Panel(
                "Failures",
                "Tasks per second that ended without success, those that became dead letters among them, and attempts "
                "that are made again.",
                [
                    (
                        "{{namespace}}/{{queue}} failed: {{reason}}",
                        f"sum by (namespace, queue, reason) (rate(headrace_tasks_failed_total{{{_QUEUE}}}{_OVER}))",
                    ),
                    (
                        "{{namespace}}/{{queue}} dead letters",
                        f"sum by (namespace, queue) (rate(headrace_tasks_dlq_total{{{_QUEUE}}}{_OVER}))",
                    ),
                    (
                        "{{namespace}}/{{queue}} retries",
                        f"sum by (namespace, queue) (rate(headrace_task_retries_total{{{_QUEUE}}}{_OVER}))",
                    ),
                ],
                unit="ops",
            ),
            Panel(
                "From enqueue to end",
                "How long completed tasks took, from their enqueue to the end of the attempt that settled them.",
                _quantiles("headrace_task_duration_seconds", f'{_QUEUE}, status="completed"', 0.5, 0.95, 0.99),
                unit="s",
            ),
            Panel(
                "Tasks by state",
                "Where the tasks are.",
                [
                    (
                        "{{status}}",
                        f"sum by (status) (max by (namespace, queue, status) (headrace_task_state_total{{{_QUEUE}}}))",
                    )
                ],
            ),
            Panel(
                "Slots in use",
                "Slots in use of all slots of the active workers of a queue.",
                [
                    (
                        "{{namespace}}/{{queue}}",
                        f"max by (namespace, queue) (headrace_worker_capacity_used_ratio{{{_QUEUE}}})",
                    )
                ],
                unit="percentunit",
            ),
            Panel(
                "Promotions",
                "Tasks per minute that waited for so long that they count as more urgent now.",
                [
                    (
                        "{{namespace}}/{{queue}} {{from}} to {{to}}",
                        "sum by (namespace, queue, from, to) "
                        f"(rate(headrace_tasks_promoted_total{{{_QUEUE}}}{_OVER})) * 60",
                    )
                ],
            ),
        ),
    ),
    (
        "Pool $pool",
        (
            Panel(
                "Pods and backlog",
                "Pods by state, and on the right the tasks that wait for this pool.",
                [
                    ("{{state}}", f"sum by (state) (max by (namespace, pool, state) (headrace_pool_pods{{{_POOL}}}))"),
                    ("backlog", f"sum(max by (namespace, pool) (headrace_pool_backlog{{{_POOL}}}))"),
                ],
                width=16,
                right="backlog",
            ),
            Panel(
                "Utilisation",
                "Tasks that its workers run, of those that they may run at a time.",
                [
                    (
                        "slots in use",
                        f"sum(headrace_worker_slots_used{{{_POOL}}}) / sum(headrace_worker_slots{{{_POOL}}})",
                    )
                ],
                unit="percentunit",
            ),
            Panel(
                "Reaction",
                "From the bell to the end of the request that added pods.",
                _quantiles("headrace_scaling_reaction_seconds", _POOL, 0.5, 0.95),
                unit="s",
            ),
            Panel(
                "Decisions",
                "Changes of the number of pods, by their reason.",
                [("{{reason}}", f"sum by (reason) (increase(headrace_scaling_decisions_total{{{_POOL}}}{_OVER}))")],
                style="bars",
            ),
            Panel(
                "Limited",
                "1 while there cannot be as many pods as there should be.",
                [("{{reason}}", f"max by (reason) (headrace_pool_limited{{{_POOL}}})")],
            ),
            Panel(
                "Handlers",
                "How long the handler of each kind of task runs: the 95th percentile.",
                [
                    (
                        "{{task}}",
                        "histogram_quantile(0.95, sum by (le, task) "
                        f"(rate(headrace_task_run_seconds_bucket{{{_POOL}}}{_OVER})))",
                    )
                ],
                unit="s",
            ),
            Panel(
                "Drains refused",
                "Workers that looked idle and had a task when they were asked to drain, per minute.",
                [("refused", f"sum(rate(headrace_drains_refused_total{{{_POOL}}}{_OVER})) * 60")],
            ),
            Panel(
                "Heartbeats that failed",
                "Heartbeats of its workers that did not reach Redis, per minute.",
                [("failed", f"sum(rate(headrace_worker_heartbeat_failures_total{{{_POOL}}}{_OVER})) * 60")],
            ),
        ),
    ),
    (
        "Operator",
        (
            _number(
                "Leaders",
                "Replicas that lead: one, whatever happens.",
                "sum(headrace_operator_leader)",
            ),
            _number(
                "Queues without series",
                "Queues beyond the limit of the operator, which are added up as (other).",
                "max(headrace_metrics_queues_folded)",
                bad_from=1,
            ),
            _number(
                "Orphans in a day",
                "Tasks that executed without a lease, and were put back.",
                f"sum(increase(headrace_orphans_repaired_total{{{_QUEUE}}}[1d]))",
                bad_from=1,
            ),
        ),
    ),
)
