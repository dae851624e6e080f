"""Task ids: UUIDv7 that sort in the order in which they were made."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from headrace.model.ids import is_task_id, new_task_id


def test_an_id_is_a_uuid_of_version_7():
    value = uuid.UUID(new_task_id())
    assert (value.version, value.variant) == (7, uuid.RFC_4122)


def test_an_id_tells_its_millisecond():
    before_ms = time.time_ns() // 1_000_000
    made_ms = uuid.UUID(new_task_id()).int >> 80
    after_ms = time.time_ns() // 1_000_000
    # Ids made in a rush run ahead of the clock, by 4096 a millisecond at most.
    assert before_ms <= made_ms <= after_ms + 1000


def test_ids_sort_in_the_order_in_which_they_were_made():
    made = [new_task_id() for _ in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_go_on_rising_when_the_clock_goes_back(monkeypatch):
    before = new_task_id()
    monkeypatch.setattr("headrace.model.ids.time.time_ns", lambda: 1_000_000_000)
    first, second = new_task_id(), new_task_id()
    assert before < first < second


def test_threads_never_get_the_same_id():
    made: list[str] = []

    def make() -> None:
        made.extend([new_task_id() for _ in range(2000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({task_id.rsplit("-", 2)[0] for task_id in made}) == 8000


@pytest.mark.parametrize(
    "value", ["018f3c5e-7a10-7c3e-9d2b-5f0a1b2c3d4e", str(uuid.UUID(int=0)), str(uuid.UUID(int=2**128 - 1))]
)
def test_the_canonical_text_of_a_uuid_can_name_a_task(value):
    assert is_task_id(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        "0" * 32,
        "{00000000-0000-0000-0000-000000000000}",
        "00000000-0000-0000-0000-00000000000A",
        "urn:uuid:00000000-0000-0000-0000-000000000000",
        "00000000-0000-0000-0000-000000000000 ",
        None,
        5,
        b"00000000-0000-0000-0000-000000000000",
    ],
)
def test_anything_else_cannot(value):
    assert not is_task_id(value)
