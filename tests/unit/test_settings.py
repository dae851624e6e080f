"""URLs: every form, every mistake, and no password anywhere it can be read."""

from __future__ import annotations

import pytest

from headrace.model.errors import InvalidConfig
from headrace.queue.settings import RedisSettings

SECRET = "s3cr3t-Word"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost", {"mode": "standalone", "hosts": (("localhost", 6379),), "db": 0, "tls": False}),
        ("redis://h:7000/3", {"hosts": (("h", 7000),), "db": 3}),
        ("redis://h/", {"hosts": (("h", 6379),), "db": 0}),
        ("rediss://h:7000", {"tls": True, "tls_check_hostname": True}),
        ("redis://user:pw@h", {"username": "user", "password": "pw"}),
        ("redis://:pw@h", {"username": None, "password": "pw"}),
        ("redis://user@h", {"username": "user", "password": None}),
        ("redis://u%40x:p%3A%2F%40%3F%23%25+@h/1", {"username": "u@x", "password": "p:/@?#%+", "db": 1}),
        ("redis://u:p@ss/w@h:1", {"password": "p@ss/w", "hosts": (("h", 1),)}),
        ("redis://[::1]:7000/2", {"hosts": (("::1", 7000),), "db": 2}),
        ("redis://[fe80::1]", {"hosts": (("fe80::1", 6379),)}),
        ("unix:///run/redis.sock", {"unix_socket": "/run/redis.sock", "hosts": (), "mode": "standalone"}),
        ("unix://u:p@/run/r.sock", {"unix_socket": "/run/r.sock", "username": "u", "password": "p"}),
        (
            "redis+sentinel://u:p@s1,s2:26380,[::1]:26381/mymaster/2",
            {
                "mode": "sentinel",
                "hosts": (("s1", 26379), ("s2", 26380), ("::1", 26381)),
                "sentinel_service": "mymaster",
                "db": 2,
                "username": "u",
                "password": "p",
            },
        ),
        ("redis+sentinel://s1/mymaster", {"sentinel_service": "mymaster", "db": 0}),
        (
            "rediss+sentinel://s1/m?sentinel_username=su&sentinel_password=s%26p+w",
            {"tls": True, "sentinel_username": "su", "sentinel_password": "s&p+w"},
        ),
        ("redis+cluster://h1:7000,h2:7001", {"mode": "cluster", "hosts": (("h1", 7000), ("h2", 7001)), "tls": False}),
        ("redis+cluster://h1/0", {"mode": "cluster", "db": 0}),
        ("rediss+cluster://h1", {"mode": "cluster", "tls": True}),
        (
            "rediss://h?tls_ca_file=/a/ca.pem&tls_cert_file=c.pem&tls_key_file=k.pem&tls_check_hostname=false",
            {
                "tls_ca_file": "/a/ca.pem",
                "tls_cert_file": "c.pem",
                "tls_key_file": "k.pem",
                "tls_check_hostname": False,
            },
        ),
        (
            "redis://h?pool_size=50&pool_wait_s=1.5&connect_timeout_s=2&command_timeout_s=30",
            {"pool_size": 50, "pool_wait_s": 1.5, "connect_timeout_s": 2.0, "command_timeout_s": 30.0},
        ),
    ],
)
def test_reads_every_form(url, expected):
    settings = RedisSettings.from_url(url)
    assert {name: getattr(settings, name) for name in expected} == expected


def test_defaults():
    settings = RedisSettings()
    assert (settings.pool_size, settings.pool_wait_s) == (20, 4.0)
    assert (settings.connect_timeout_s, settings.command_timeout_s) == (4.0, 10.0)
    assert (settings.confirm_replicas, settings.confirm_timeout_s) == (0, 1.0)


def test_reads_what_replicas_must_confirm():
    settings = RedisSettings.from_url("redis+sentinel://s1/m?confirm_replicas=2&confirm_timeout_s=0.25")
    assert (settings.confirm_replicas, settings.confirm_timeout_s) == (2, 0.25)


@pytest.mark.parametrize(
    ("url", "field", "advice"),
    [
        ("localhost:6379", "redis_url", "redis://"),
        ("http://localhost", "redis_url", "redis+sentinel://"),
        ("", "redis_url", "redis://"),
        ("redis://", "redis_url", "host name is missing"),
        ("redis://h:", "redis_url", "1 to 65535"),
        ("redis://h:0", "redis_url", "1 to 65535"),
        ("redis://h:65536", "redis_url", "1 to 65535"),
        ("redis://h:port", "redis_url", "1 to 65535"),
        ("redis://::1:6379", "redis_url", "brackets"),
        ("redis://[::1", "redis_url", "brackets"),
        ("redis://[::1]6379", "redis_url", "brackets"),
        ("redis://h/zero", "redis_url", "must be a number"),
        ("redis://h/-1", "redis_url", "must be a number"),
        ("redis://h/0/1", "redis_url", "too many parts"),
        ("redis://h1,h2", "redis_url", "redis+cluster://"),
        ("redis://h#frag", "redis_url", "%23"),
        ("unix://relative.sock", "redis_url", "absolute path"),
        ("unix:///", "redis_url", "absolute path"),
        ("redis+sentinel://s1", "redis_url", "redis+sentinel://h1,h2/mymaster"),
        ("redis+sentinel://s1/", "redis_url", "names no Sentinel service"),
        ("redis+sentinel://s1,/m", "redis_url", "host name is missing"),
        ("redis+cluster://h1/1", "redis_url", "database 0 only"),
        ("redis://h?poolsize=5", "redis_url", "did you mean pool_size?"),
        ("redis://h?colour=blue", "redis_url", "known are"),
        ("redis://h?pool_size=0", "pool_size", "at least 1"),
        ("redis://h?pool_size=-3", "pool_size", "at least 1"),
        ("redis://h?pool_size=many", "pool_size", "whole number"),
        ("redis://h?pool_size=1&pool_size=2", "pool_size", "twice"),
        ("redis://h?pool_wait_s=0", "pool_wait_s", "above 0"),
        ("redis://h?connect_timeout_s=inf", "connect_timeout_s", "above 0"),
        ("redis://h?command_timeout_s=nan", "command_timeout_s", "above 0"),
        ("redis://h?command_timeout_s=soon", "command_timeout_s", "number of seconds"),
        ("redis://h?confirm_replicas=-1", "confirm_replicas", "0 or more"),
        ("redis://h?confirm_replicas=all", "confirm_replicas", "whole number"),
        ("redis://h?confirm_timeout_s=0", "confirm_timeout_s", "above 0"),
        ("redis://h?confirm_replicas=1&confirm_timeout_s=10", "confirm_timeout_s", "below command_timeout_s (10)"),
        ("redis://h?tls_ca_file=/ca.pem", "tls_ca_file", "rediss://"),
        ("rediss://h?tls_ca_file=", "tls_ca_file", "empty"),
        ("rediss://h?tls_check_hostname=no", "tls_check_hostname", "true or false"),
        ("rediss://h?tls_cert_file=c.pem", "tls_key_file", "both"),
        ("rediss://h?tls_key_file=k.pem", "tls_cert_file", "both"),
        ("redis://h?sentinel_username=u", "sentinel_username", "redis+sentinel://"),
    ],
)
def test_says_what_is_wrong(url, field, advice):
    with pytest.raises(InvalidConfig) as caught:
        RedisSettings.from_url(url)
    assert caught.value.field == field
    assert advice in caught.value.problem


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        pytest.param(f"redis://h/{'9' * 5000}", "the database after the last / must be a number", id="database"),
        pytest.param(f"redis+sentinel://h/m/{'9' * 5000}", "must be a number", id="database of a service"),
        pytest.param(f"redis://h:{'9' * 5000}", "a port must be a number from 1 to 65535", id="port"),
        pytest.param(f"redis://[::1]:{'9' * 5000}", "1 to 65535", id="port after brackets"),
    ],
)
def test_a_number_that_python_refuses_to_read_is_no_number(url, advice):
    with pytest.raises(InvalidConfig) as caught:
        RedisSettings.from_url(url)
    assert caught.value.field == "redis_url"
    assert advice in caught.value.problem


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://user:{SECRET}@h:6379/0", "redis://user@h:6379/0"),
        (f"redis://:{SECRET}@h", "redis://h:6379/0"),
        (f"rediss://user:{SECRET}@[::1]:7000/2", "rediss://user@[::1]:7000/2"),
        (f"unix://user:{SECRET}@/run/r.sock", "unix://user@/run/r.sock"),
        (
            f"redis+sentinel://u:{SECRET}@s1,s2/m/1?sentinel_password={SECRET}&sentinel_username=su",
            "redis+sentinel://u@s1:26379,s2:26379/m/1",
        ),
        (f"rediss+cluster://u:{SECRET}@h1,h2:7001", "rediss+cluster://u@h1:6379,h2:7001"),
    ],
)
def test_description_has_no_password(url, shown):
    settings = RedisSettings.from_url(url)
    assert settings.describe() == shown
    for text in (repr(settings), str(settings), f"{settings}", repr([settings])):
        assert shown in text
        assert SECRET not in text


@pytest.mark.parametrize(
    "url",
    [
        f"user:{SECRET}@host",
        f"redsi://user:{SECRET}@host",
        f"redis://user:{SECRET}",  # the @host is missing: the password stands where a port should
        f"redis://user:{SECRET}/0",
        f"redis://user:{SECRET}@",
        f"redis://user:{SECRET}@h:nope",
        f"redis://user:{SECRET}@h/x",
        f"redis://user:x?{SECRET}@h",  # an unescaped ? in the password
        f"redis://user:x#{SECRET}@h",
        f"redis://user:{SECRET}@h?unknown=1",
        f"redis+sentinel://h/m?sentinel_password=x&{SECRET}",  # an unescaped & in the password
        f"redis+sentinel://h/m?sentinel_password={SECRET}&sentinel_password=x",
        f"redis+sentinel://u:{SECRET}@h",
        f"redis+cluster://u:{SECRET}@h/3",
        f"redis+cluster://h?sentinel_password={SECRET}",
        f"redis://u:{SECRET}@h?pool_size=0",
    ],
)
def test_no_error_repeats_the_password(url):
    with pytest.raises(InvalidConfig) as caught:
        RedisSettings.from_url(url)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


def test_immutable():
    with pytest.raises(AttributeError):
        RedisSettings().pool_size = 5  # type: ignore[misc]
