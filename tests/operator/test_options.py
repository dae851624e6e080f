"""The operator's command line."""

from __future__ import annotations

import pytest

from headrace.model.errors import InvalidInput
from headrace_operator.options import parse


def test_a_namespace_may_use_the_tenant_that_is_called_like_it_and_those_that_are_allowed_to_it():
    options = parse(["--tenants", '{"shop": ["acme", "beta"]}'])
    assert options.allows("shop", "shop")
    assert options.allows("shop", "acme")
    assert not options.allows("shop", "else")
    assert not options.allows("else", "acme")


def test_tenants_may_stand_in_a_file(tmp_path):
    file = tmp_path / "tenants.json"
    file.write_text('{"shop": ["acme"]}')
    assert parse(["--tenants", str(file)]).allows("shop", "acme")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/nowhere/at/all", "--tenants: is neither JSON nor a file that can be read"),
        ("{shop}", "--tenants: is not JSON"),
        ('{"shop": "acme"}', '--tenants: must be an object of lists, such as {"shop": ["acme"]}'),
        ('{"shop": ["Acme!"]}', r"--tenants[shop]: 'Acme!' is not allowed"),
    ],
)
def test_tenants_that_cannot_be_read_are_one_sentence(text, message):
    with pytest.raises(InvalidInput) as caught:
        parse(["--tenants", text])
    assert str(caught.value).startswith(message)


def test_without_a_namespace_it_looks_after_all_of_them():
    assert parse([]).namespaces == ()
    assert parse(["--namespace", "a", "--namespace", "b", "--namespace", "a"]).namespaces == ("a", "b")


def test_how_many_queues_have_series_of_their_own_can_be_said():
    assert parse([]).metrics_max_queues == 500
    assert parse(["--metrics-max-queues", "0"]).metrics_max_queues == 0
    with pytest.raises(InvalidInput) as caught:
        parse(["--metrics-max-queues", "-1"])
    assert str(caught.value) == "--metrics-max-queues: must be 0 or more, not -1"
