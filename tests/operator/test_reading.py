"""What holds for every manifest: who it is, what is absent, and which values no field takes."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.errors import HeadraceError
from headrace_operator.reading import InvalidResource
from headrace_operator.resources import TaskQueueResource
from tests.operator.builders import queue, queue_body


def test_null_is_the_same_as_nothing():
    nothing: dict[str, Any] = dict.fromkeys(
        ("tenant", "queue", "levels", "defaultLevel", "selection", "antiStarvation", "lease", "retry", "paused")
    )
    assert queue(**nothing) == queue()


def test_fields_of_a_newer_schema_are_passed_over():
    assert queue(novelty={"a": 1}, lease={"novelty": 1}) == queue()


def test_an_invalid_resource_is_invalid_input():
    assert issubclass(InvalidResource, HeadraceError)


@pytest.mark.parametrize("key", ["namespace", "name", "uid", "generation", "creationTimestamp"])
def test_what_identifies_a_resource_must_be_there(key):
    body = queue_body()
    del body["metadata"][key]
    with pytest.raises(InvalidResource, match=f"metadata.{key}: is missing"):
        TaskQueueResource.from_body(body)


@pytest.mark.parametrize("text", ["yesterday", "2030-01-31", "2030-01-31T12:00:00"])
def test_a_time_has_a_zone(text):
    body = queue_body()
    body["metadata"]["creationTimestamp"] = text
    with pytest.raises(InvalidResource, match="metadata.creationTimestamp: must be a time such as"):
        TaskQueueResource.from_body(body)


def test_a_number_that_python_refuses_to_print_is_refused_too():
    with pytest.raises(InvalidResource, match="spec.lease.seconds: must be a number, not a number as large as that"):
        queue(lease={"seconds": 10**5000})
