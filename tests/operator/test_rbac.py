"""The operator's rights are the least that will do: it uses each of them, and it has no other.

What it uses stands in its own log, which has a line for every request when it is told to log what helps debugging.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import yaml

from tests.support.chart import Release
from tests.support.kubernetes import Namespace
from tests.support.operator import (
    NAME,
    NAMESPACE,
    Operator,
    Request,
    apply,
    change,
    deploy_redis,
    deployments,
    producing,
    secret,
    service_account,
    taskqueue,
    wait_for,
    wait_for_condition,
    wait_for_workers,
    wait_until_ready,
    workerpool,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

_RIGHTS = {"ServiceAccount", "Role", "RoleBinding"}

# An account that nobody has bound to any role has what everybody has.
NOBODY = "nobody-in-particular"


def requests_of(rules: Iterable[Mapping[str, Any]]) -> set[Request]:
    """What the rules of a role allow, one by one."""
    return {
        Request(verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule.get("apiGroups") or []
        for resource in rule.get("resources") or []
    }


def rules_of(namespace: Namespace, what: str) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = json.loads(namespace.kubectl("get", what, "--output=json"))["rules"]
    return rules


def may(asked_in: Namespace, account: str) -> set[Request]:
    """What the API server says that an account (``NAMESPACE:NAME``) may do in a namespace."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": asked_in.name},
    }
    return requests_of(answer_to(asked_in, account, review)["resourceRules"])


def answer_to(asked_in: Namespace, account: str, review: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a review that the account itself asks for."""
    # Without validation by kubectl, for which the account would have to be allowed to list CRDs.
    arguments = ("create", "--filename=-", "--output=json", "--validate=false", f"--as=system:serviceaccount:{account}")
    status: dict[str, Any] = json.loads(asked_in.kubectl(*arguments, stdin=json.dumps(review)))["status"]
    return status


# By itself and at last, when all that the other tests have made it do is in its logs.
@pytest.mark.disruptive
def test_it_uses_every_right_that_it_has(namespace, operator):
    everything_that_it_does(namespace)
    system = operator.namespace
    granted = requests_of(
        [*rules_of(system, f"clusterrole/{NAME}"), *rules_of(system, f"role/{NAME}-leader")],
    )
    assert granted

    # Some of it happens now and then, or when something is gone for good.
    def all_are_used() -> bool:
        operator.read_logs()
        return granted <= operator.requests

    with contextlib.suppress(AssertionError):
        wait_for(all_are_used, "not all rights were used")
    assert sorted(granted - operator.requests) == [], "rights that it has not used"
    assert sorted(operator.requests - granted) == [], "requests that it has no right to"
    assert operator.refusals == []


def everything_that_it_does(namespace: Namespace) -> None:
    """A queue and a pool through their whole lives."""
    deploy_redis(namespace)
    apply(
        namespace,
        secret("orders-redis", url=f"redis://redis.{namespace.name}.svc:6379/0"),
        service_account("shop", allows_workers=True),
        taskqueue("orders", redis={"secretRef": {"name": "orders-redis"}}, deletionPolicy="Purge"),
        workerpool("steady", ["orders"], replicas=2, template={"serviceAccountName": "shop"}),
        workerpool("stray", ["nowhere"]),
    )
    wait_until_ready(namespace, queues=["orders"], pools=["steady"])
    wait_for_condition(namespace, "workerpool", "stray", "Ready", "False")
    with producing(namespace, "orders") as producer:
        producer.completed(producer.enqueue("nothing", *([number] for number in range(20))))
    # One worker fewer, then others instead of those that are left, then none at all.
    namespace.kubectl("scale", "workerpool/steady", "--replicas=1")
    wait_for_workers(namespace, "steady", 1)
    (before,) = deployments(namespace, "steady")
    change(namespace, "workerpool/steady", concurrency=3)
    wait_for(lambda: before not in deployments(namespace, "steady"), "the former revision did not go")
    namespace.kubectl("delete", "workerpool/steady", "taskqueue/orders")
    wait_for(lambda: not deployments(namespace, "steady"), "the pool's Deployments did not go")


def test_it_has_no_right_but_those_that_the_chart_gives_it(namespace, operator):
    system = operator.namespace
    account = f"{NAMESPACE}:{NAME}"
    everywhere = requests_of(rules_of(system, f"clusterrole/{NAME}"))
    at_home = requests_of(rules_of(system, f"role/{NAME}-leader"))

    common = may(namespace, f"{NAMESPACE}:{NOBODY}")
    assert may(namespace, account) - common == everywhere
    assert may(system, account) - common == everywhere | at_home
    # Of leases, only its own can be read or changed.
    named = [rule for rule in rules_of(system, f"role/{NAME}-leader") if rule["verbs"] != ["create"]]
    assert [rule["resourceNames"] for rule in named] == [[NAME]]
    for verb, what in (("list", "secrets"), ("delete", "pods"), ("create", "pods/exec"), ("update", "taskqueues")):
        assert not allowed(namespace, account, verb, what)


def allowed(asked_in: Namespace, account: str, verb: str, what: str) -> bool:
    """As `kubectl auth can-i` does, which would end with an error for a no."""
    resource, _, subresource = what.partition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "namespace": asked_in.name,
                "verb": verb,
                "group": "headrace.dev" if resource == "taskqueues" else "",
                "resource": resource,
                "subresource": subresource,
            }
        },
    }
    return bool(answer_to(asked_in, account, review)["allowed"])


def test_the_operator_of_one_namespace_has_the_same_rights_there_and_none_elsewhere(namespace, operator: Operator):
    # Without its Deployment: it is the account that is asked about.
    rendered = Release(namespace).template({"watchNamespaces": [namespace.name], "crds": {"install": False}})
    rights = [each for each in yaml.safe_load_all(rendered) if each and each["kind"] in _RIGHTS]
    assert not [each for each in yaml.safe_load_all(rendered) if each and each["kind"].startswith("ClusterRole")]
    apply(namespace, *rights)
    account = f"{namespace.name}:{NAME}"
    system = operator.namespace
    common = may(namespace, f"{namespace.name}:{NOBODY}")
    granted = requests_of([*rules_of(system, f"clusterrole/{NAME}"), *rules_of(system, f"role/{NAME}-leader")])

    wait_for(lambda: may(namespace, account) - common >= granted, "the bindings did not come into force")
    assert may(namespace, account) - common == granted
    assert may(system, account) == common
    assert may(Namespace(namespace.cluster, "default"), account) == common
