"""What the watch has told, and what it has missed."""

from __future__ import annotations

from typing import Any

from headrace_operator.store import Key, Store


def body(name: str, *, uid: str = "", version: int = 1, pool: str | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "namespace": "shop",
        "name": name,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    if pool is not None:
        metadata["labels"] = {"headrace.dev/pool": pool}
    return {"metadata": metadata}


class Heard:
    def __init__(self, store: Store) -> None:
        self.news: list[tuple[str, bool]] = []
        store.subscribe(lambda key, _, gone: self.news.append((key.name, gone)))


def test_whoever_subscribes_hears_of_every_change():
    store = Store()
    heard = Heard(store)
    store.put("TaskQueue", body("a"))
    store.put("TaskQueue", body("a", version=2))
    store.remove("TaskQueue", body("a", version=3))
    assert heard.news == [("a", False), ("a", False), ("a", True)]
    assert store.get("TaskQueue", "shop", "a") is None


def test_an_object_that_was_made_anew_is_news_of_both():
    store = Store()
    heard = Heard(store)
    store.put("TaskQueue", body("a", uid="1"))
    store.put("TaskQueue", body("a", uid="2"))
    assert heard.news == [("a", False), ("a", True), ("a", False)]


def test_the_late_end_of_a_former_object_does_not_remove_the_one_of_the_same_name():
    store = Store()
    store.put("TaskQueue", body("a", uid="2"))
    store.remove("TaskQueue", body("a", uid="1"))
    assert store.get("TaskQueue", "shop", "a") is not None


def test_what_our_own_write_has_overtaken_is_not_believed():
    store = Store()
    store.put("TaskQueue", body("a", version=5))
    heard = Heard(store)
    store.put_own("TaskQueue", body("a", version=9))
    assert heard.news == []
    store.put("TaskQueue", body("a", version=7))
    assert heard.news == []
    store.put("TaskQueue", body("a", version=9))
    assert heard.news == [("a", False)]


def test_a_listing_brings_what_the_watch_has_missed():
    store = Store()
    store.put("TaskQueue", body("stays"))
    store.put("TaskQueue", body("went"))
    before = store.uids("TaskQueue")
    store.put("TaskQueue", body("came-after-the-question"))
    heard = Heard(store)
    assert not store.compare("TaskQueue", [body("stays"), body("unheard")], before)
    assert sorted(heard.news) == [("unheard", False), ("went", True)]
    names = {found["metadata"]["name"] for found in store.all("TaskQueue")}
    assert names == {"stays", "unheard", "came-after-the-question"}
    assert store.compare("TaskQueue", [body("stays"), body("unheard")], before)


def test_children_are_found_by_their_label():
    store = Store()
    store.put("Pod", body("one", pool="mail"))
    store.put("Pod", body("two", pool="mail"))
    store.put("Pod", body("three", pool="other"))
    store.put("Deployment", body("mail-1", pool="mail"))
    assert {pod["metadata"]["name"] for pod in store.children("Pod", "shop", "mail")} == {"one", "two"}
    assert store.get("Deployment", "shop", "mail-1") is not None
    assert Key("Pod", "shop", "one") == ("Pod", "shop", "one")
