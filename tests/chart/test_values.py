"""What the chart says to values that cannot work: which key it is, and what to write instead."""

from __future__ import annotations

import pytest

from tests.chart.helm import Helm
from tests.cluster.problem import ClusterProblem

pytestmark = pytest.mark.slow

# A value, as JSON by its path, and what is said about it. These are the schema's answers.
MISSPELT = {
    "operators": ('{"replicas":3}', ["'operators' not allowed"]),
    "operator.replica": ("3", ["/operator", "'replica' not allowed"]),
    "operator.replicas": ('"two"', ["/operator/replicas", "want integer"]),
    "operator.logLevel": ('"verbose"', ["/operator/logLevel", "'debug', 'info'"]),
    "operator.image.digest": ('"abc"', ["/operator/image/digest", "sha256:"]),
    "operator.image.name": ('"x"', ["/operator/image", "'name' not allowed"]),
    "operator.metrics.maxQueues": ("0", ["/operator/metrics/maxQueues", "minimum"]),
    "operator.tenants": ('{"shop":"acme"}', ["/operator/tenants/shop", "want array"]),
    "operator.podLabels": ('{"a":true}', ["/operator/podLabels/a", "want string"]),
    "operator.podDisruptionBudget.enabled": ('"yes"', ["/operator/podDisruptionBudget/enabled", "'auto', true, false"]),
    "operator.topologySpreadConstraints": ('["zone"]', ["/operator/topologySpreadConstraints/0", "want object"]),
    "imagePullSecrets": ('["pull"]', ["/imagePullSecrets/0", "want object"]),
    "watchNamespaces": ('"shop"', ["/watchNamespaces", "want array"]),
    "redis.external.host": ('"redis:6379"', ["/redis/external", "'host' not allowed"]),
    "redis.external.mode": ('"sentinel"', ["/redis/external/mode", "'Sentinel'"]),
    "redis.persistance": ('{"enabled":false}', ["/redis", "'persistance' not allowed"]),
    "redis.appendFsync": ('"no"', ["/redis/appendFsync", "'everysec', 'always'"]),
    "redis.maxMemory": ('"256Mi"', ["/redis/maxMemory", "does not match"]),
    "crds.installed": ("true", ["/crds", "'installed' not allowed"]),
    "networkPolicy.operator.redisPorts": ("[0]", ["/networkPolicy/operator/redisPorts/0", "minimum"]),
    "monitoring.serviceMonitor.interval": ('"30"', ["/monitoring/serviceMonitor/interval", "does not match"]),
    "alerts.prometheusRules": ('{"enabled":true}', ["/alerts", "'prometheusRules' not allowed"]),
    "tests.timeout": ("60", ["/tests", "'timeout' not allowed"]),
}
AUTHORITY = '{"enabled":true,"caSecretRef":{"name":"ca"}}'
# Values that are fine by themselves, and what is said about them together.
CONTRADICTING: dict[str, tuple[dict[str, str], str]] = {
    "no Redis": ({"redis.enabled": "false"}, "redis.enabled is false and redis.external says nothing; write where"),
    "two kinds of Redis": (
        {"redis.external.url": '"redis://r:6379"'},
        "redis.enabled is true, and redis.external.url speaks of another Redis",
    ),
    "a Redis that nobody asks for": (
        {"redis.perTaskQueue": "true"},
        "redis.perTaskQueue is true, so the chart has no use",
    ),
    "sentinels without a name": (
        {"redis.enabled": "false", "redis.external": '{"mode":"Sentinel","hosts":["a","b"]}'},
        "redis.external.sentinelService is missing",
    ),
    "a name without sentinels": (
        {"redis.enabled": "false", "redis.external": '{"hosts":["a"],"sentinelService":"mymaster"}'},
        "set redis.external.mode=Sentinel",
    ),
    "several servers": (
        {"redis.enabled": "false", "redis.external.hosts": '["a","b"]'},
        "redis.external.hosts has several servers; set redis.external.mode",
    ),
    "a database of a cluster": (
        {"redis.enabled": "false", "redis.external": '{"mode":"Cluster","hosts":["a"],"db":1}'},
        "redis.external.db is 1, but a Redis Cluster has database 0 only",
    ),
    "a mode without hosts": (
        {"redis.enabled": "false", "redis.external": '{"mode":"Cluster","existingSecret":"own"}'},
        "redis.external.mode belongs to redis.external.hosts",
    ),
    "a URL for a host": (
        {"redis.enabled": "false", "redis.external.hosts": '["redis://a:6379"]'},
        "redis.external.hosts takes host or host:port",
    ),
    "a URL that is none": (
        {"redis.enabled": "false", "redis.external.url": '"a:6379"'},
        "redis.external.url must begin with redis://",
    ),
    "a URL and hosts": (
        {"redis.enabled": "false", "redis.external": '{"url":"redis://a","hosts":["a"]}'},
        "redis.external.url says everything in one",
    ),
    "a login twice": (
        {"redis.enabled": "false", "redis.external": '{"hosts":["a"],"existingSecret":"own","password":"p"}'},
        "redis.external.existingSecret has the login",
    ),
    "an authority without TLS": (
        {"redis.enabled": "false", "redis.external": '{"hosts":["a"],"tls":{"caSecretRef":{"name":"ca"}}}'},
        "redis.external.tls.caSecretRef is for TLS; set redis.external.tls.enabled=true",
    ),
    "an authority that the URL does not use": (
        {"redis.enabled": "false", "redis.external": f'{{"url":"rediss://a","tls":{AUTHORITY}}}'},
        "add ?tls_ca_file=/etc/headrace/redis-tls/ca.crt",
    ),
    "TLS that the URL does not use": (
        {"redis.enabled": "false", "redis.external": '{"url":"redis://a","tls":{"enabled":true}}'},
        "begin it with rediss (two s)",
    ),
    "a short password": ({"redis.auth.password": '"short"'}, "redis.auth.password must have 8 characters or more"),
    "two passwords": (
        {"redis.auth": '{"password":"long-enough","existingSecret":"own"}'},
        "redis.auth.password and redis.auth.existingSecret are both given; keep one",
    ),
    "copies of somebody else's Secret": (
        {"redis.auth.existingSecret": '"own"', "redis.connectionNamespaces": '["shop"]'},
        "redis.connectionNamespaces is for the connection Secret that the chart makes",
    ),
    "a pattern for a namespace": (
        {"watchNamespaces": '["team-*"]'},
        'watchNamespaces has "team-*", but names are taken',
    ),
    "no name for a namespace": ({"watchNamespaces": '["Shop"]'}, 'watchNamespaces has "Shop", which is not the name'),
    "no account": ({"operator.serviceAccount.create": "false"}, "operator.serviceAccount.name must say which account"),
    "a budget for one replica": (
        {"operator.replicas": "1", "operator.podDisruptionBudget.enabled": "true"},
        "no node with the operator could be drained",
    ),
    "an argument that the chart gives": (
        {"operator.extraArgs": '["--namespace=shop"]'},
        "operator.extraArgs has --namespace, which the chart gives by itself; instead use watchNamespaces",
    ),
}


def said_to(helm: Helm, sets: dict[str, str]) -> str:
    with pytest.raises(ClusterProblem) as caught:
        helm.template(sets=sets)
    return str(caught.value)


@pytest.mark.parametrize("path", MISSPELT)
def test_a_misspelt_value_is_told_by_its_name(helm, path):
    value, words = MISSPELT[path]
    said = said_to(helm, {path: value})
    for each in words:
        assert each in said


@pytest.mark.parametrize("case", CONTRADICTING)
def test_what_cannot_work_is_told_with_what_to_do(helm, case):
    sets, sentence = CONTRADICTING[case]
    assert sentence in said_to(helm, sets)


def test_all_that_is_wrong_is_told_at_once(helm):
    said = said_to(
        helm, {"redis.enabled": "false", "watchNamespaces": '["*"]', "operator.extraArgs": '["--tenants={}"]'}
    )
    assert said.count("\n- ") == 3


def test_a_password_is_not_repeated(helm):
    assert "hunter2" not in said_to(helm, {"redis.auth.password": '"hunter2"'})


def test_helm_4_names_the_key_as_well(helm_4):
    assert "'replica' not allowed" in said_to(helm_4, {"operator.replica": "3"})
