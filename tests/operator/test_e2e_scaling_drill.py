"""Scale-downs and rollouts under a random load, with pods killed among them: no task notices but those of killed pods.

`tests.operator.scaling_drill` does it, `tests.operator.scaling_verdict` judges. ``make test`` has the short form, and
``make drill DRILL=scaling`` the long one: 500 scale-downs and 50 rollouts, with tasks of 0.1 to 30 s.
"""

from __future__ import annotations

import random

import pytest

from tests.chaos.forms import sized
from tests.chaos.report import write
from tests.operator.scaling_drill import Drill, Extent
from tests.support.operator import deploy_redis, needs_a_shell_on_the_node

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.drill]

EXTENT = Extent(
    pools=sized(short=4, medium=6, long=6),
    scale_downs=sized(short=12, medium=60, long=500),
    rollouts=sized(short=2, medium=6, long=50),
    kills=sized(short=2, medium=8, long=60),
    deletions=sized(short=1, medium=4, long=30),
    longest_task_s=sized(short=5.0, medium=30.0, long=30.0),
    longest_gap_s=sized(short=8.0, medium=25.0, long=25.0),
    within_s=sized(short=600.0, medium=3600.0, long=4 * 3600.0),
)


def test_scaling(namespace, operator, record_property):
    needs_a_shell_on_the_node(namespace.cluster)
    deploy_redis(namespace)
    seed = random.SystemRandom().randrange(1_000_000)
    record_property("seed", seed)
    print(f"\nseed: {seed}", flush=True)
    verdict, row = Drill(namespace, operator.namespace, EXTENT, seed).run()
    write(row)
    assert verdict.completed == verdict.tasks
    assert (row.lost, row.settled_twice, verdict.interrupted, verdict.count("attempt spent")) == (0, 0, 0, 0)
