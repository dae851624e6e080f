"""What may be called what."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import InvalidName
from headrace.model.names import capability_set, check_idempotency_key, check_name, check_task_type
from headrace.queue.keys import QueueKeys, queue_names_key

ALPHABET = "use lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"


@pytest.mark.parametrize("name", ["a", "0", "email", "team-a.email-2", "a" * 63, "a--b", "1.2.3"])
def test_a_proper_name_is_returned_as_it_is(name):
    assert check_name("queue", name) == name


@pytest.mark.parametrize(
    "name",
    ["", "-a", "a-", ".a", "a.", "A", "a_b", "a b", "a/b", "a:b", "a{b", "a}b", "a*", "a\n", "ä", "a\x00", "١"],
)
def test_an_improper_name_is_refused_and_shown(name):
    with pytest.raises(InvalidName) as caught:
        check_name("tenant", name)
    assert str(caught.value) == f"tenant: {name!r} is not allowed; {ALPHABET}"


def test_a_name_has_63_characters_at_most():
    with pytest.raises(InvalidName, match=r"^queue: is 64 characters long; at most 63 are allowed$"):
        check_name("queue", "a" * 64)


@pytest.mark.parametrize(("value", "kind"), [(None, "NoneType"), (5, "int"), (b"a", "bytes")])
def test_a_name_is_a_string(value, kind):
    with pytest.raises(InvalidName, match=f"^queue: must be a string, not {kind}$"):
        check_name("queue", value)


@given(st.text(alphabet="a1.-{}/:*?[ \nA", max_size=4))
def test_no_accepted_name_has_a_character_that_means_something_in_a_key(name):
    try:
        check_name("tenant", name)
    except InvalidName:
        return
    assert not set(name) & set("{}/:*?[] \n")


@given(st.text(alphabet="a1.-{}/:", max_size=3), st.text(alphabet="a1.-{}/:", max_size=3))
def test_the_keys_of_two_tenants_never_share_a_prefix(one, other):
    try:
        first, second = QueueKeys(one, "q"), QueueKeys(other, "q")
    except InvalidName:
        return
    assert first.prefix.startswith(second.prefix) == (one == other)


def test_all_keys_of_a_queue_lie_in_one_slot():
    keys = QueueKeys("acme", "email")
    names = [key.decode() for key in keys.fixed]
    names += [keys.task("1"), keys.worker("w"), keys.wake("gpu"), keys.worker_wake("w"), keys.cancel_channel]
    assert {re.findall(r"\{(.*?)\}", name)[0] for name in names} == {"acme/email"}
    assert queue_names_key("acme") == "hr:{acme}:queues"


@pytest.mark.parametrize("value", ["send", "mail.send_all", "a:b-c", "_", "A1", "x" * 200])
def test_a_task_type_may_look_like_a_function(value):
    assert check_task_type("type", value) == value


@pytest.mark.parametrize("value", ["", "x" * 201, ".a", "a.", "a b", "a/b", "ä", None, 5])
def test_other_task_types_are_refused(value):
    with pytest.raises(InvalidName, match=r"^type: .* is not allowed; use up to 200 letters, digits, "):
        check_task_type("type", value)


@pytest.mark.parametrize("value", ["order-1", "Ünïcode und Leerzeichen", "{a/b}:c", "x" * 255])
def test_any_printable_text_can_be_an_idempotency_key(value):
    assert check_idempotency_key("idempotency_key", value) == value


@pytest.mark.parametrize("value", ["", "x" * 256, "a\nb", "a\x00"])
def test_an_idempotency_key_is_printable_and_bounded(value):
    with pytest.raises(InvalidName, match=r"^idempotency_key: must be 1 to 255 printable characters$"):
        check_idempotency_key("idempotency_key", value)


def test_an_idempotency_key_is_a_string():
    with pytest.raises(InvalidName, match=r"^idempotency_key: must be a string, not int$"):
        check_idempotency_key("idempotency_key", 5)


@pytest.mark.parametrize(
    ("capabilities", "text"),
    [([], ""), (["gpu"], "gpu"), (["ssd", "gpu", "ssd"], "gpu,ssd"), ({"b", "a"}, "a,b"), (("x",), "x")],
)
def test_a_capability_set_has_one_spelling(capabilities, text):
    assert capability_set("capabilities", capabilities) == text


@pytest.mark.parametrize("value", ["gpu", 5, None])
def test_capabilities_are_a_collection(value):
    with pytest.raises(InvalidName, match=r"^capabilities: must be a collection of names, such as \['gpu'\]$"):
        capability_set("capabilities", value)


@pytest.mark.parametrize("capability", ["a,b", "GPU", ""])
def test_every_capability_is_a_name(capability):
    with pytest.raises(InvalidName, match=r"^capabilities: '.*' is not allowed; "):
        capability_set("capabilities", ["ok", capability])
