"""When tasks are claimed before there is room to run them."""

from __future__ import annotations

from headrace.worker.ahead import Ahead


def measured(*, handler_s: float, round_trip_s: float) -> Ahead:
    ahead = Ahead(5)
    for _ in range(200):
        ahead.handled(handler_s)
        ahead.exchanged(round_trip_s)
    return ahead


def test_nothing_is_held_before_a_task_has_been_measured():
    ahead = Ahead(5)
    ahead.exchanged(0.001)
    assert ahead.count() == 0


def test_short_tasks_are_held_as_many_as_run():
    assert measured(handler_s=0.02, round_trip_s=0.0005).count() == 5
    assert measured(handler_s=0.04, round_trip_s=0.0005).count() == 5


def test_of_shorter_ones_some_milliseconds_worth_is_held():
    assert measured(handler_s=0.01, round_trip_s=0.0005).count() == 10
    assert measured(handler_s=0.005, round_trip_s=0.0005).count() == 20
    assert measured(handler_s=0.001, round_trip_s=0.0005).count() == 25
    assert measured(handler_s=0.0, round_trip_s=0.0005).count() == 25


def test_many_slots_hold_one_turn_and_no_more():
    ahead = Ahead(256)
    ahead.handled(0.0)
    ahead.exchanged(0.001)
    assert ahead.count() == 256


def test_nothing_is_held_where_a_round_trip_does_not_matter():
    assert measured(handler_s=0.1, round_trip_s=0.0005).count() == 0


def test_it_follows_a_change_of_work():
    ahead = measured(handler_s=0.01, round_trip_s=0.0005)
    for _ in range(3):
        ahead.handled(60.0)
    assert ahead.count() == 0
    for _ in range(300):
        ahead.handled(0.01)
    assert ahead.count() == 10


def test_what_got_stuck_is_not_held_again_before_a_handler_has_ended():
    ahead = measured(handler_s=0.01, round_trip_s=0.0005)
    ahead.got_stuck()
    assert ahead.count() == 0
    ahead.handled(0.01)
    assert ahead.count() == 10


def test_nothing_is_held_behind_tasks_that_would_not_let_it_begin_soon():
    assert measured(handler_s=0.2, round_trip_s=0.05).count() == 0


def test_what_is_held_is_enough_while_it_lasts_for_two_round_trips():
    ahead = measured(handler_s=0.008, round_trip_s=0.001)
    assert ahead.is_enough(5)
    assert ahead.is_enough(2)
    assert not ahead.is_enough(1)
    assert not ahead.is_enough(0)


def test_tasks_shorter_than_a_round_trip_are_never_enough():
    assert not measured(handler_s=0.001, round_trip_s=0.002).is_enough(10)
    assert not Ahead(5).is_enough(10)
