"""Where Redis is: the same for workers and operator, and no password in any error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queue.settings import RedisSettings
from headrace_operator.reading import InvalidResource
from headrace_operator.redis_reference import REDIS_CA_FILE, SecretKey, redis_settings
from tests.operator.builders import queue, reference

SECRET = "s3cr3t-Word"


@pytest.mark.parametrize(
    ("redis", "url"),
    [
        ({"hosts": ["redis"]}, "redis://redis:6379/0"),
        ({"hosts": ["redis.data.svc.:7000"], "db": 3}, "redis://redis.data.svc.:7000/3"),
        ({"hosts": ["[FD00::7]"]}, "redis://[fd00::7]:6379/0"),
        ({"hosts": ["r"], "tls": {"enabled": True}}, "rediss://r:6379/0"),
        (
            {"hosts": ["r"], "tls": {"enabled": True, "caSecretRef": {"name": "ca"}, "checkHostname": False}},
            f"rediss://r:6379/0?tls_ca_file={REDIS_CA_FILE}&tls_check_hostname=false",
        ),
        (
            {"mode": "Sentinel", "hosts": ["a", "b:1"], "sentinelService": "my.master", "db": 2},
            "redis+sentinel://a:26379,b:1/my.master/2",
        ),
        ({"mode": "Cluster", "hosts": ["a", "b"], "tls": {"enabled": True}}, "rediss+cluster://a:6379,b:6379"),
        ({"secretRef": {"name": "orders-redis"}}, None),
    ],
)
def test_the_url_that_workers_get(redis, url):
    assert reference(**redis).url_without_login() == url


HOST_NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,10}[a-z0-9])?(:[1-9][0-9]{0,3})?", fullmatch=True)


@given(
    st.lists(HOST_NAMES, min_size=1, max_size=3),
    st.sampled_from(["Standalone", "Sentinel", "Cluster"]),
    st.integers(0, 15),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_workers_read_the_same_from_the_url_as_the_operator_from_the_manifest(hosts, mode, db, tls, has_ca, check):
    redis: dict[str, Any] = {
        "mode": mode,
        "hosts": hosts[:1] if mode == "Standalone" else hosts,
        "db": 0 if mode == "Cluster" else db,
        "tls": {"enabled": tls, "checkHostname": check} | ({"caSecretRef": {"name": "ca"}} if has_ca else {}),
    }
    if mode == "Sentinel":
        redis["sentinelService"] = "mymaster"
    found = reference(**redis)
    url = found.url_without_login()
    assert url is not None
    assert RedisSettings.from_url(url) == redis_settings(found, None, REDIS_CA_FILE if found.ca_secret else None)


REDIS_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"redis": None}, "spec.redis: names no server; give it hosts, or a secretRef to a Secret with the key 'url'"),
    (
        {"redis": {"mode": "Single", "hosts": ["a"]}},
        "spec.redis.mode: must be Standalone, Sentinel or Cluster, not 'Si",
    ),
    ({"redis": {"hosts": "redis:6379"}}, "spec.redis.hosts: must be a list, not 'redis:6379'"),
    ({"redis": {"hosts": [6379]}}, "spec.redis.hosts[0]: must be a string, not 6379"),
    (
        {"redis": {"hosts": ["a", "b"]}},
        "spec.redis.hosts: names 2 servers; set mode to Sentinel or Cluster, or name one",
    ),
    (
        {"redis": {"mode": "Cluster", "hosts": [f"h{index}" for index in range(17)]}},
        "spec.redis.hosts: names 17 servers; at most 16",
    ),
    (
        {"redis": {"mode": "Cluster", "hosts": ["a"], "db": 1}},
        "spec.redis.db: is 1; a Redis Cluster has database 0 only",
    ),
    ({"redis": {"hosts": ["a"], "db": -1}}, "spec.redis.db: is -1; it must be a whole number from 0 to 65535"),
    (
        {"redis": {"mode": "Sentinel", "hosts": ["a"]}},
        "spec.redis.sentinelService: is missing; give the name by which the sentinels know the primary",
    ),
    (
        {"redis": {"mode": "Sentinel", "hosts": ["a"], "sentinelService": "a/b?c"}},
        "spec.redis.sentinelService: may have letters, digits, '.', '_' and '-' only",
    ),
    (
        {"redis": {"hosts": ["a"], "sentinelService": "m"}},
        "spec.redis.sentinelService: is for mode Sentinel; change the mode, or leave it out",
    ),
    ({"redis": {"secretRef": {}}}, "spec.redis.secretRef.name: is missing; give it a value"),
    (
        {"redis": {"secretRef": {"name": "A/b"}}},
        "spec.redis.secretRef.name: 'A/b' is not a name that Kubernetes allows",
    ),
    (
        {"redis": {"secretRef": {"name": "a"}, "db": 1}},
        "spec.redis.db: belongs to hosts; write it into the url in the Secret instead",
    ),
    (
        {"redis": {"hosts": ["a"], "tls": {"enabled": True, "caSecretRef": {"name": "a", "key": "../b"}}}},
        "spec.redis.tls.caSecretRef.key: '../b' is not a key that a Secret can have",
    ),
]


@pytest.mark.parametrize(("spec", "expected"), REDIS_MISTAKES, ids=[expected[:60] for _, expected in REDIS_MISTAKES])
def test_a_mistake_about_redis_is_named_as_the_manifest_names_it(spec, expected):
    with pytest.raises(InvalidResource) as caught:
        queue(**spec)
    assert str(caught.value).startswith(expected)
    assert str(caught.value) == f"{caught.value.field}: {caught.value.problem}"
    assert "_s" not in str(caught.value), "which is how the library's names look"


HOSTILE_HOSTS = [
    "",
    "redis:",
    "redis:0",
    "redis:65536",
    "redis:x",
    "redis/1",
    "redis?tls_check_hostname=false",
    "a,b",
    f"user:{SECRET}@redis",
    f"redis://:{SECRET}@redis",
    "re dis",
    "redis\n",
    "$(HOME)",
    "::1",
    "[::1",
    "[1:2]",
    "rédis",
    "redis:٦٣٧٩",
]


@pytest.mark.parametrize("host", HOSTILE_HOSTS)
def test_a_host_is_nothing_but_a_host(host):
    with pytest.raises(InvalidResource, match=r"spec.redis.hosts\[0\]") as caught:
        reference(hosts=[host])
    assert SECRET not in str(caught.value)


def test_without_tls_its_settings_may_stay():
    assert reference(hosts=["r"], tls={"caSecretRef": {"name": "ca"}, "checkHostname": False}) == reference(hosts=["r"])


def test_the_certificate_s_key_has_a_default():
    tls = {"enabled": True, "caSecretRef": {"name": "ca"}}
    assert reference(hosts=["r"], tls=tls).ca_secret == SecretKey("ca", "ca.crt")


def test_the_operator_logs_in_as_the_secret_says():
    found = reference(hosts=["r"], secretRef={"name": "orders-redis"})
    login = {"username": "u", "password": SECRET, "sentinel-password": "not for this mode"}
    settings = redis_settings(found, login, None)
    assert settings == RedisSettings(hosts=(("r", 6379),), username="u", password=SECRET)
    assert SECRET not in repr(found)


def test_sentinels_have_a_login_of_their_own():
    found = reference(mode="Sentinel", hosts=["s"], sentinelService="m", secretRef={"name": "orders-redis"})
    settings = redis_settings(found, {"sentinel-username": "su", "sentinel-password": "sp"}, None)
    assert (settings.sentinel_username, settings.sentinel_password) == ("su", "sp")
    assert (settings.username, settings.password) == (None, None)


def test_a_secret_may_have_the_whole_url():
    found = reference(secretRef={"name": "orders-redis"})
    settings = redis_settings(found, {"url": f"rediss+sentinel://u:{SECRET}@s1,s2/m/3?confirm_replicas=1"}, None)
    assert settings == RedisSettings(
        mode="sentinel",
        hosts=(("s1", 26379), ("s2", 26379)),
        sentinel_service="m",
        db=3,
        tls=True,
        username="u",
        password=SECRET,
        confirm_replicas=1,
    )


def test_the_operator_keeps_the_certificate_elsewhere_than_workers():
    found = reference(secretRef={"name": "s"}, tls={"enabled": True, "caSecretRef": {"name": "ca"}})
    settings = redis_settings(found, {"url": f"rediss://r?tls_ca_file={REDIS_CA_FILE}"}, "/somewhere/ca.crt")
    assert settings.tls_ca_file == "/somewhere/ca.crt"


def test_a_url_does_not_make_the_operator_wait_or_open_more_than_usual():
    options = "pool_size=9999&pool_wait_s=999&connect_timeout_s=999&command_timeout_s=999&confirm_timeout_s=998"
    settings = redis_settings(reference(secretRef={"name": "s"}), {"url": f"redis://r?{options}"}, None)
    assert settings == RedisSettings(hosts=(("r", 6379),))
    modest = "pool_size=2&pool_wait_s=1&connect_timeout_s=1&command_timeout_s=0.5&confirm_timeout_s=0.4"
    settings = redis_settings(reference(secretRef={"name": "s"}), {"url": f"redis://r?{modest}"}, None)
    assert (settings.pool_size, settings.command_timeout_s, settings.confirm_timeout_s) == (2, 0.5, 0.4)


TLS_WITH_CA = {"enabled": True, "caSecretRef": {"name": "redis-ca"}}
URL_ONLY = {"secretRef": {"name": "orders-redis"}}


@pytest.mark.parametrize(
    ("redis", "secret", "expected"),
    [
        (URL_ONLY, None, "spec.redis.secretRef: Secret orders-redis does not exist; create it in the same namespace"),
        (URL_ONLY, {}, "spec.redis.secretRef: Secret orders-redis has no key 'url'"),
        (URL_ONLY, {"url": ""}, "spec.redis.secretRef: Secret orders-redis has no key 'url'"),
        (URL_ONLY | {"hosts": ["r"]}, None, "spec.redis.secretRef: Secret orders-redis does not exist"),
        (
            URL_ONLY,
            {"url": f"redis://:{SECRET}@r\n"},
            "spec.redis.secretRef: Secret orders-redis, key 'url' ends with a line break; store it without one",
        ),
        (
            URL_ONLY | {"hosts": ["r"]},
            {"password": f"{SECRET}\n"},
            "spec.redis.secretRef: Secret orders-redis, key 'password' ends with a line break; store it without one",
        ),
        (
            URL_ONLY,
            {"url": f"http://:{SECRET}@r"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': must start with one of redis://",
        ),
        (
            URL_ONLY,
            {"url": f"redis://:{SECRET}@r?pool_size=many"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': pool_size: must be a whole number",
        ),
        (
            URL_ONLY,
            {"url": f"redis://:{SECRET}@r/{'9' * 5000}"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': the database after the last / must be a number",
        ),
        (
            URL_ONLY,
            {"url": f"redis://:{SECRET}@r:{'9' * 5000}"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': a port must be a number from 1 to 65535",
        ),
        (
            URL_ONLY,
            {"url": "unix:///run/redis.sock"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': is a Unix",
        ),
        (
            URL_ONLY,
            {"url": "rediss://r?tls_cert_file=/a&tls_key_file=/b"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': asks for a client certificate",
        ),
        (
            URL_ONLY | {"mode": "Cluster"},
            {"url": "redis+sentinel://r/m"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': is of mode sentinel, but spec.redis.mode is cluster",
        ),
        (
            URL_ONLY | {"tls": {"enabled": True}},
            {"url": "redis://r"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': is without TLS",
        ),
        (
            URL_ONLY | {"tls": TLS_WITH_CA},
            {"url": "rediss://r"},
            f"spec.redis.secretRef: Secret orders-redis, key 'url': does not use spec.redis.tls.caSecretRef; add the "
            f"option tls_ca_file={REDIS_CA_FILE}",
        ),
        (
            URL_ONLY,
            {"url": "rediss://r?tls_ca_file=/etc/passwd"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': has the option tls_ca_file, but there is no",
        ),
        (
            URL_ONLY | {"tls": {"enabled": True, "checkHostname": False}},
            {"url": "rediss://r"},
            "spec.redis.secretRef: Secret orders-redis, key 'url': checks host names",
        ),
    ],
)
def test_what_can_be_wrong_with_a_secret(redis, secret, expected):
    found = reference(**redis)
    with pytest.raises(InvalidResource) as caught:
        redis_settings(found, secret, "/somewhere/ca.crt" if found.ca_secret else None)
    assert str(caught.value).startswith(expected)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_certificate_that_is_not_there():
    with pytest.raises(InvalidResource) as caught:
        redis_settings(reference(hosts=["r"], tls=TLS_WITH_CA), None, None)
    assert str(caught.value) == "spec.redis.tls.caSecretRef: Secret redis-ca has no key 'ca.crt'"
