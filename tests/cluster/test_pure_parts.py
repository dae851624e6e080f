"""What can be decided without a cluster: names, keys, rules, and the sentences for what is missing."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cluster import binaries, debian, host, kind, lifecycle, network, node_image, runc_within_bounds
from tests.cluster.__main__ import main
from tests.cluster.places import Places
from tests.cluster.problem import ClusterProblem
from tests.cluster.process import contained, mortal, run
from tests.support.waiting import wait_until

SOCKET_PATH_LIMIT = 107
INTERFACE_NAME_LIMIT = 15


# ── names and places ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", "Upper", "1st", "-x", "x-", "a" * 31, "a/b", "a b", "../x"])
def test_a_name_that_cannot_be_one_is_refused_with_the_rule(name):
    with pytest.raises(ClusterProblem, match="lower-case letters"):
        Places(name)


def test_two_names_share_no_place():
    def distinct(places: Places) -> set[str]:
        return {
            str(value)
            for value in (
                places.folder,
                places.lock,
                places.kubeconfig,
                places.docker_data,
                places.run,
                places.socket,
                places.network,
                places.bridge,
            )
        }

    assert distinct(Places("one")).isdisjoint(distinct(Places("two")))


def test_the_longest_name_fits_what_the_kernel_allows():
    places = Places("a" * 30)
    assert len(str(places.socket)) <= SOCKET_PATH_LIMIT
    assert len(places.bridge) <= INTERFACE_NAME_LIMIT


def test_the_cache_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Places("mine").folder == tmp_path / "headrace" / "cluster" / "clusters" / "mine"


def test_a_name_has_its_subnet_and_evades_those_that_are_taken():
    places = Places("mine")
    first = places.node_subnet([])
    assert places.node_subnet([]) == first
    second = places.node_subnet([first])
    assert not second.overlaps(first)
    assert not places.node_subnet([first, second.supernet(new_prefix=23)]).overlaps(second)


def test_no_subnet_left_is_said():
    with pytest.raises(ClusterProblem, match="make cluster-down"):
        Places("mine").node_subnet([ipaddress.IPv4Network("10.0.0.0/8")])


# ── what is missing ──────────────────────────────────────────────────────────────────────────────────


def test_a_machine_that_is_not_linux_is_told_so():
    with pytest.raises(ClusterProblem, match="needs Linux: please start Docker"):
        host.require_private_docker(system="Darwin", user_id=0)


def test_a_user_who_is_not_root_is_told_so():
    with pytest.raises(ClusterProblem, match="needs root: please start Docker, run this as root"):
        host.require_private_docker(system="Linux", user_id=1000)


def test_a_missing_go_is_told(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterProblem, match="please install Go"):
        host.require_go()


def test_a_full_disk_is_told_with_both_figures(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ClusterProblem, match=r"has 1\.5 GB left and this needs 10 GB: .*XDG_CACHE_HOME"):
        host.require_disk(host.COLD_BUILD_BYTES, free_bytes=1_500_000_000)


def test_a_problem_is_one_sentence_and_a_status(monkeypatch, capsys):
    monkeypatch.delenv(lifecycle.NAMED_CLUSTER, raising=False)
    assert main(["env", "--name", "never-made"]) == 1
    assert capsys.readouterr().err.strip() == (
        "There is no cluster 'never-made': please bring it up with: make cluster NAME=never-made"
    )


@pytest.mark.parametrize("nodes", ["0", "-1"])
def test_a_cluster_without_nodes_is_refused(nodes, capsys):
    assert main(["up", "--nodes", nodes]) == 1
    assert "at least one node" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "down", "env", "base-image"])
def test_every_command_has_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert f"Example: python -m tests.cluster {command}" in " ".join(capsys.readouterr().out.split())


def test_a_named_cluster_is_used_and_never_taken_down(monkeypatch, tmp_path):
    monkeypatch.setenv(lifecycle.NAMED_CLUSTER, str(tmp_path / "kubeconfig"))
    assert lifecycle.standing("any").environment() == {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    lifecycle.down("any")


# ── other programs ───────────────────────────────────────────────────────────────────────────────────


def test_a_failure_carries_what_the_program_said():
    with pytest.raises(ClusterProblem, match=r"failed with status 3:\nwhy it failed"):
        run(["sh", "-c", "echo why it failed >&2; exit 3"], timeout_s=30)


def test_a_program_that_hangs_is_ended():
    with pytest.raises(ClusterProblem, match=r"took longer than 0\.2 s"):
        run(["sleep", "60"], timeout_s=0.2)


@pytest.mark.parametrize("ignored", [True, False])
def test_who_ignores_ctrl_c_means_its_children_too(ignored: bool):
    """A terminal sends it to all of a session's foreground group, and programs in Go listen even so."""
    code = f"""
import signal, sys
from tests.cluster.process import run
if {ignored}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print(run([sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"], timeout_s=60), end="")
"""
    assert run([sys.executable, "-c", code], timeout_s=120).strip() == str(ignored)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_a_child_does_not_outlive_us():
    child_command = mortal(["sleep", "600"])
    code = f"import subprocess, time; print(subprocess.Popen({child_command!r}).pid, flush=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    status = Path(f"/proc/{child}/status")
    # setpriv has made its arrangement once it has become the command itself.
    wait_until(lambda: "Name:\tsleep" in status.read_text(), 30, "the child did not start")
    parent.kill()
    parent.communicate(timeout=30)
    wait_until(lambda: not status.exists() or "State:\tZ" in status.read_text(), 30, "the child lived on")


def test_a_contained_command_finds_its_proc_where_its_root_will_be():
    assert "--mount-proc=/node/proc" in contained(["true"], proc=Path("/node/proc"))


def test_when_one_of_two_builds_fails_the_other_is_not_waited_for():
    release = threading.Event()

    def fail() -> Path:
        raise ClusterProblem("no network")

    def slow() -> Path:
        assert release.wait(60)
        return Path()

    try:
        for pair in ((fail, slow), (slow, fail)):
            with pytest.raises(ClusterProblem, match="no network"):
                lifecycle._together(*pair)
    finally:
        release.set()


# ── texts of others ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sources", "mirror"),
    [
        ("Types: deb\nURIs: http://mirror.invalid/debian\nSuites: bookworm\n", "http://mirror.invalid/debian"),
        (
            "# deb http://old.invalid x\ndeb http://mirror.invalid/debian bookworm main\n",
            "http://mirror.invalid/debian",
        ),
        ("deb [signed-by=/k.gpg] http://mirror.invalid/debian bookworm main\n", "http://mirror.invalid/debian"),
        ("", None),
    ],
)
def test_the_mirror_is_the_machines_own(sources, mirror):
    assert debian.mirror_of(sources) == mirror


def test_the_staging_modules_of_kubernetes_are_found():
    go_mod = (
        "replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tk8s.io/cri-api => ./staging/src/k8s.io/cri-api\n)\n"
    )
    assert binaries.staging_modules(go_mod) == ["k8s.io/api", "k8s.io/cri-api"]


def test_only_the_rules_with_our_mark_are_deleted():
    listing = (
        "-P FORWARD ACCEPT\n"
        '-A FORWARD -i hr-1 -m comment --comment "headrace-one" -j ACCEPT\n'
        "-A FORWARD -i hr-2 -m comment --comment headrace-one-more -j ACCEPT\n"
        "-A FORWARD -i eth0 -j ACCEPT\n"
    )
    assert network.deletions(listing, "headrace-one") == [
        ["-D", "FORWARD", "-i", "hr-1", "-m", "comment", "--comment", "headrace-one", "-j", "ACCEPT"]
    ]


def test_containerds_configuration_keeps_what_is_kinds():
    kinds = (
        "version = 2\n\n[proxy_plugins]\n# fuse\n[proxy_plugins.fuse]\n  type = 1\n\n"
        '[plugins.cri]\n  sandbox_image = "images.example/pause:3.10"\n  restrict_oom_score_adj = false\n  other = 1\n'
    )
    assert node_image.containerd_config(kinds, "images.example/pause:3.10.1") == (
        'version = 2\n\n[plugins.cri]\n  sandbox_image = "images.example/pause:3.10.1"\n'
        "  restrict_oom_score_adj = true\n  other = 1\n"
    )


def test_a_new_kind_that_configures_containerd_in_another_way_is_noticed():
    with pytest.raises(ClusterProblem, match="in another way"):
        node_image.containerd_config("version = 3\n", "images.example/pause:3.10.1")


def test_three_nodes_are_one_control_plane_and_two_workers():
    assert kind.configuration(3).count("role: control-plane") == 1
    assert kind.configuration(3).count("role: worker") == 2
    assert "worker" not in kind.configuration(1)


# ── runc within bounds ───────────────────────────────────────────────────────────────────────────────


def test_the_bounding_set_is_read_from_the_kernels_mask():
    allowed = runc_within_bounds.allowed_capabilities("Name:\tx\nCapBnd:\t000001fffeffffff\n")
    assert "CAP_SYS_RESOURCE" not in allowed
    assert {"CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_CHECKPOINT_RESTORE"} <= allowed
    assert len(allowed) == 40


def test_what_the_machine_lacks_is_taken_out_and_nothing_else():
    process = json.loads(
        '{"oomScoreAdj": -500, "capabilities": {"bounding": ["CAP_KILL", "CAP_SYS_RESOURCE"], "ambient": null}}'
    )
    runc_within_bounds.bound(process, {"CAP_KILL"})
    assert process == {"oomScoreAdj": 0, "capabilities": {"bounding": ["CAP_KILL"], "ambient": []}}


def test_a_machine_that_lacks_nothing_gets_what_was_asked():
    process = {"oomScoreAdj": -500, "capabilities": {"bounding": ["CAP_SYS_RESOURCE"]}}
    runc_within_bounds.bound(process, {"CAP_SYS_RESOURCE"})
    assert process == {"oomScoreAdj": -500, "capabilities": {"bounding": ["CAP_SYS_RESOURCE"]}}


@pytest.mark.parametrize("arguments", [["--bundle", "/b", "id"], ["-b=/b", "id"], ["x", "-b", "/b"]])
def test_an_option_is_found_in_both_spellings(arguments):
    assert runc_within_bounds.option(arguments, "--bundle", "-b") == "/b"
