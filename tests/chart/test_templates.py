"""What the chart makes of values: valid objects, pods of the level `restricted`, and no more rights than are needed."""

from __future__ import annotations

import subprocess
from base64 import b64decode
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.queue.settings import RedisSettings
from headrace_operator.options import parse
from tests.chart import programs
from tests.chart.helm import MONITORING, NAMESPACE, REPOSITORY, VALUES, Document, Helm, documents, every, find
from tests.chart.restricted import pods, violations
from tests.chart.schemas import LOCATION, write_schemas

pytestmark = pytest.mark.slow

# By their names: the values, and what the cluster knows beside Kubernetes.
SETS: dict[str, tuple[tuple[Path, ...], tuple[str, ...]]] = {
    "defaults": ((), ()),
    "external-redis": ((VALUES / "external-redis.yaml",), ()),
    "everything": ((VALUES / "everything.yaml",), (MONITORING,)),
    "defaults-monitored": ((), (MONITORING,)),
}


@pytest.fixture(scope="module")
def rendered(helm: Helm) -> dict[str, str]:
    """The text of each set."""
    return {name: helm.text(*values, api_versions=known) for name, (values, known) in SETS.items()}


def secret_of(found: list[Document], name: str = "headrace-redis", namespace: str = NAMESPACE) -> dict[str, str]:
    (one,) = [each for each in every(found, "Secret", name) if each["metadata"]["namespace"] == namespace]
    return {key: b64decode(value).decode() for key, value in one["data"].items()}


def arguments_of_the_operator(found: list[Document]) -> list[str]:
    (container,) = find(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


# ── all of it ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", SETS)
def test_both_helms_find_nothing_to_complain_about(helm, helm_4, name):
    values, _ = SETS[name]
    for program in (helm, helm_4):
        assert "1 chart(s) linted, 0 chart(s) failed" in program.lint(*values)


@pytest.mark.parametrize("name", ["external-redis", "everything"])
def test_both_helms_make_the_same_of_it(helm, helm_4, rendered, name):
    values, known = SETS[name]
    assert list(documents(rendered[name])) == helm_4.template(*values, api_versions=known)


@pytest.mark.parametrize("name", SETS)
def test_every_object_is_valid(rendered, name, tmp_path):
    found = list(documents(rendered[name]))
    write_schemas(tmp_path, found)
    done = kubeconform(rendered[name], tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"Valid: {len(found)}, Invalid: 0, Errors: 0, Skipped: 0" in done.stdout


def test_a_misspelt_field_would_be_seen(rendered, tmp_path):
    broken = rendered["defaults"].replace("terminationGracePeriodSeconds", "terminationGracePeriod")
    broken = broken.replace("deletionPolicy:", "deletionPolice:").replace("maxReplicas: 1", "maxReplicas: one")
    write_schemas(tmp_path, documents(broken))
    said = kubeconform(broken, tmp_path).stdout
    for word in ("terminationGracePeriod", "deletionPolice", "maxReplicas"):
        assert word in said


def kubeconform(text: str, schemas: Path) -> subprocess.CompletedProcess[str]:
    command = [str(programs.kubeconform()), "-strict", "-summary", "-schema-location", str(schemas / LOCATION)]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", SETS)
def test_every_pod_is_of_the_level_restricted(rendered, name):
    found = dict(pods(documents(rendered[name])))
    assert "Deployment headrace-operator" in found
    assert {who: problems for who, pod in found.items() if (problems := violations(pod))} == {}
    for pod in found.values():
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["resources"]["limits"]["memory"]


def test_the_check_of_the_level_can_fail(defaults):
    (_, pod), *_ = pods(deepcopy(defaults))
    pod["hostNetwork"] = True
    pod["volumes"].append({"name": "host", "hostPath": {"path": "/"}})
    pod["securityContext"] = {"runAsUser": 0}
    pod["containers"][0]["securityContext"] = {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}}
    pod["containers"][0]["ports"][0]["hostPort"] = 80
    assert len(violations(pod)) == 10


# ── rights ───────────────────────────────────────────────────────────────────────────────────────────


def rules(found: list[Document], kind: str, name: str) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = find(found, kind, name)["rules"]
    return asked


def test_the_rights_are_the_same_in_one_namespace_as_in_all(helm, defaults):
    scoped = helm.template(sets={"watchNamespaces": f'["{NAMESPACE}"]'})
    assert rules(scoped, "Role", "headrace-operator") == rules(defaults, "ClusterRole", "headrace-operator")
    leading = [rules(found, "Role", "headrace-operator-leader") for found in (scoped, defaults)]
    assert leading[0] == leading[1]


def test_an_operator_of_some_namespaces_has_no_right_in_the_cluster(helm):
    found = helm.template(VALUES / "everything.yaml")
    assert [*every(found, "ClusterRole"), *every(found, "ClusterRoleBinding")] == []
    roles = every(found, "Role", "headrace-operator")
    assert [each["metadata"]["namespace"] for each in roles] == ["headrace-system", "shop", "warehouse"]
    assert [each["rules"][-1]["resources"] for each in roles] == [["workerpools/finalizers"]] * 3
    for binding in every(found, "RoleBinding"):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "headrace-operator", "namespace": "headrace-system"}
        ]
    assert parse(arguments_of_the_operator(found)[1:-2]).namespaces == ("headrace-system", "shop", "warehouse")


def test_without_roles_and_accounts_of_its_own_it_makes_none(helm):
    found = helm.template(
        sets={
            "rbac": '{"create":false,"aggregateToDefaultRoles":false}',
            "operator.serviceAccount": '{"create":false,"name":"own"}',
        }
    )
    kinds = {each["kind"] for each in found}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"}
    assert find(found, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "own"


def test_the_operator_understands_its_arguments(helm, defaults):
    assert parse(arguments_of_the_operator(defaults)[1:]).lease_name == "headrace-operator"
    found = helm.template(sets={"operator.tenants": '{"shop":["acme","acme.eu"]}', "operator.logLevel": '"debug"'})
    options = parse(arguments_of_the_operator(found)[1:])
    assert options.tenants == {"shop": frozenset({"acme", "acme.eu"})}
    assert (options.log_level, options.log_style, options.health_port) == ("debug", "json", 8080)


# ── Redis ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_connection_is_a_url_that_headrace_reads(helm, defaults):
    made = secret_of(defaults)
    settings = RedisSettings.from_url(made["url"])
    assert settings.hosts == (("headrace-redis.headrace-system.svc", 6379),)
    assert settings.password == made["password"]
    assert len(made["password"]) == 32
    assert secret_of(helm.template())["password"] != made["password"], "a password is the same twice"


def test_a_password_of_ones_own_is_the_same_each_time(helm):
    one, two = (helm.template(VALUES / "everything.yaml") for _ in range(2))
    assert one == two
    for namespace in (NAMESPACE, "shop", "warehouse"):
        assert RedisSettings.from_url(secret_of(one, namespace=namespace)["url"]).password == "correct+horse/battery"
    assert "password" not in secret_of(one, namespace="shop")


@pytest.mark.parametrize(
    ("external", "expected"),
    [
        (
            '{"hosts":["redis.shop.svc:6380"],"username":"work er","password":"a+b/c@d","db":3,"tls":{"enabled":true}}',
            RedisSettings(hosts=(("redis.shop.svc", 6380),), username="work er", password="a+b/c@d", db=3, tls=True),
        ),
        (
            '{"mode":"Sentinel","hosts":["s1","s2:5000"],"sentinelService":"mymaster","password":"pw","sentinelUsername":"s+",'
            '"sentinelPassword":"p&q"}',
            RedisSettings(
                mode="sentinel",
                hosts=(("s1", 26379), ("s2", 5000)),
                sentinel_service="mymaster",
                password="pw",
                sentinel_username="s+",
                sentinel_password="p&q",
            ),
        ),
        (
            '{"mode":"Cluster","hosts":["c1","c2"],"tls":{"enabled":true,"caSecretRef":{"name":"ca"},"checkHostname":false}}',
            RedisSettings(
                mode="cluster",
                hosts=(("c1", 6379), ("c2", 6379)),
                tls=True,
                tls_ca_file="/etc/headrace/redis-tls/ca.crt",
                tls_check_hostname=False,
            ),
        ),
        ('{"url":"redis://u:p@elsewhere.example/4"}', RedisSettings.from_url("redis://u:p@elsewhere.example/4")),
    ],
    ids=["standalone", "sentinel", "cluster", "url"],
)
def test_the_users_redis_becomes_the_same_kind_of_secret(helm, external, expected):
    found = helm.template(sets={"redis.enabled": "false", "redis.external": external})
    # Without repr, which hides passwords, two could look the same.
    assert RedisSettings.from_url(secret_of(found)["url"]) == expected
    assert not every(found, "StatefulSet")
    assert find(found, "TaskQueue")["spec"]["redis"]["secretRef"] == {"name": "headrace-redis"}


def test_a_secret_of_ones_own_is_referred_to(helm):
    found = helm.template(VALUES / "external-redis.yaml", namespace="shop")
    assert not every(found, "Secret")
    assert find(found, "TaskQueue")["spec"]["redis"] == {
        "mode": "Sentinel",
        "hosts": ["sentinel-0.redis.svc:26379", "sentinel-1.redis.svc:26379"],
        "sentinelService": "mymaster",
        "db": 2,
        "secretRef": {"name": "shop-redis-login"},
        "tls": {
            "enabled": True,
            "caSecretRef": {"name": "shop-redis-authority", "key": "authority.pem"},
            "checkHostname": False,
        },
    }
    (container,) = find(found, "Pod")["spec"]["containers"]
    (url,) = [each["value"] for each in container["env"] if each["name"] == "HEADRACE_REDIS_URL"]
    assert RedisSettings.from_url(url).sentinel_service == "mymaster"


def test_the_redis_of_the_chart_with_a_secret_of_ones_own(helm):
    found = helm.template(sets={"redis.auth.existingSecret": '"mine"'})
    assert not every(found, "Secret")
    (container,) = find(found, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "password"}
    assert find(found, "TaskQueue")["spec"]["redis"] == {
        "hosts": ["headrace-redis.headrace-system.svc:6379"],
        "secretRef": {"name": "mine"},
    }


def test_an_upgrade_of_the_chart_alone_does_not_restart_redis(helm, tmp_path):
    newer = tmp_path / "headrace"
    subprocess.run(["cp", "-r", str(helm.chart), str(newer)], check=True)
    chart = yaml.safe_load((newer / "Chart.yaml").read_text())
    (newer / "Chart.yaml").write_text(yaml.safe_dump(chart | {"version": "99.0.0", "appVersion": "99.0.0"}))
    old, new = helm.template(), Helm(helm.program, newer).template()
    for key in ("template", "volumeClaimTemplates"):
        assert find(old, "StatefulSet")["spec"][key] == find(new, "StatefulSet")["spec"][key]
    assert find(old, "Deployment")["spec"]["selector"] == find(new, "Deployment")["spec"]["selector"]
    (container,) = find(new, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "headrace:99.0.0"


# ── CRDs ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_crds_arrive_as_they_are_and_stay(helm, defaults):
    for path in sorted((REPOSITORY / "crds").glob("*.yaml")):
        source = yaml.safe_load(path.read_text())
        installed = find(defaults, "CustomResourceDefinition", source["metadata"]["name"])
        assert installed["spec"] == source["spec"]
        assert installed["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    loose = helm.template(sets={"crds.keep": "false"})
    assert "annotations" not in every(loose, "CustomResourceDefinition")[0]["metadata"]
    assert not every(helm.template(sets={"crds.install": "false"}), "CustomResourceDefinition")


# ── everything else ──────────────────────────────────────────────────────────────────────────────────


def test_a_digest_wins_over_a_tag_and_a_registry_stands_before_all(helm):
    digest = "sha256:" + "0" * 64
    found = helm.template(
        sets={
            "imageRegistry": '"mirror.example/x"',
            "operator.image": f'{{"tag":"2","digest":"{digest}"}}',
            "worker.image": '{"tag":"3"}',
            "imagePullSecrets": '[{"name":"pull"}]',
        }
    )
    images = {each["image"] for _, pod in pods(found) for each in pod["containers"]}
    assert images == {
        f"mirror.example/x/headrace@{digest}",
        "mirror.example/x/headrace-worker:3",
        "mirror.example/x/redis:7.4-alpine",
    }
    assert all(pod["imagePullSecrets"] == [{"name": "pull"}] for _, pod in pods(found))
    assert find(found, "WorkerPool")["spec"]["template"]["imagePullSecrets"] == [{"name": "pull"}]


def test_prometheus_is_told_of_where_its_operator_is_known(helm, defaults):
    kinds = ("ServiceMonitor", "PodMonitor")
    assert [every(defaults, kind) for kind in kinds] == [[], []]
    known = helm.template(api_versions=[MONITORING])
    service_monitor, pod_monitor = (find(known, kind) for kind in kinds)
    for endpoint in (service_monitor["spec"]["endpoints"][0], pod_monitor["spec"]["podMetricsEndpoints"][0]):
        assert (endpoint["port"], endpoint["path"], endpoint["honorLabels"]) == ("health", "/metrics", True)
    assert pod_monitor["spec"]["namespaceSelector"] == {"any": True}
    service = find(known, "Service", "headrace-operator")
    assert service["spec"]["ports"][0]["name"] == "health"
    selected = service_monitor["spec"]["selector"]["matchLabels"]
    assert selected.items() <= service["metadata"]["labels"].items()
    off = {f"monitoring.{name}.enabled": "false" for name in ("serviceMonitor", "podMonitor", "dashboards")}
    assert not every(helm.template(sets=off, api_versions=[MONITORING]), "ServiceMonitor")


def test_a_budget_is_there_for_several_replicas_only(helm, defaults):
    assert find(defaults, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert not every(helm.template(sets={"operator.replicas": "1"}), "PodDisruptionBudget")


def test_the_test_of_a_release_has_its_order_and_leaves_nothing(helm, defaults):
    hooks = [each for each in defaults if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    by_weight = sorted(hooks, key=lambda each: int(each["metadata"]["annotations"]["helm.sh/hook-weight"]))
    assert [each["kind"] for each in by_weight] == ["TaskQueue", "WorkerPool", "Pod"]
    for each in hooks:
        notes = each["metadata"]["annotations"]
        assert notes["helm.sh/hook"] == "test"
        assert notes["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    for off in ({"tests.enabled": "false"}, {"watchNamespaces": '["elsewhere"]'}):
        assert not every(helm.template(sets=off), "TaskQueue")


def test_longest_names_are_still_names(helm):
    found = helm.template(release="r" * 53)
    names = [each["metadata"]["name"] for each in found]
    assert max(map(len, names)) <= 63
    assert len(find(found, "WorkerPool")["metadata"]["name"]) <= 37


def test_as_a_part_of_another_chart(helm, tmp_path):
    (tmp_path / "Chart.yaml").write_text(
        "apiVersion: v2\nname: shop\nversion: 1.0.0\n"
        "dependencies: [{name: headrace, version: 0.1.0, repository: '', condition: headrace.enabled}]\n"
    )
    (tmp_path / "values.yaml").write_text("global: {region: eu}\nheadrace: {enabled: true}\n")
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "headrace").symlink_to(helm.chart)
    assert (
        find(Helm(helm.program, tmp_path).template(), "Deployment")["metadata"]["name"] == "headrace-headrace-operator"
    )


NOTES = '["{{ dict \\"notes\\" (include (print .Template.BasePath \\"/NOTES.txt\\") .) | toYaml }}"]'


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ({}, ["helm test headrace", "apply --filename -", "secretRef:\n         name: headrace-redis"]),
        ({"watchNamespaces": '["shop"]'}, ["`helm test` has nothing to run here", "--namespace shop apply"]),
        ({"redis.perTaskQueue": "true", "redis.enabled": "false"}, ["the chart knows no Redis", "kubectl explain"]),
        ({"redis.persistence.enabled": "false"}, ["ITS DATA IS GONE WITH ITS POD"]),
        ({"crds.install": "false"}, ["The CRDs are not part of this release"]),
    ],
    ids=["defaults", "elsewhere", "no-redis", "no-volume", "no-crds"],
)
def test_the_notes_have_the_next_three_commands(helm, sets, said):
    (notes,) = [each["notes"] for each in documents(helm.text(sets={**sets, "extraObjects": NOTES})) if "notes" in each]
    assert [number for number in "123" if f"\n{number}. " in notes] == ["1", "2", "3"]
    for words in said:
        assert words in notes
