"""`headrace explain`: help with an example, mistakes in one sentence each, and logs. Pools: tests/operator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.operator.test_explaining import UP, line
from tests.support.redis_server import free_port

CONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: secret-word}}}}]
contexts: [{{name: one, context: {{cluster: c, user: u}}}}, {{name: two, context: {{cluster: c, user: nobody}}}}]
{current}
"""


def explain(*arguments: str, kubeconfig: Path | str = "/nowhere", stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", "explain", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "KUBECONFIG": str(kubeconfig)},
    )


def refused(done: subprocess.CompletedProcess[str], status: int) -> str:
    """What a command says that cannot do what it was asked to: one line, no traceback, no password."""
    assert (done.returncode, done.stdout) == (status, "")
    assert "secret-word" not in done.stderr
    (sentence,) = done.stderr.splitlines()
    return sentence


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of a cluster that is not there."""
    path = tmp_path / "kubeconfig"
    path.write_text(CONFIG.format(port=free_port(), current="current-context: one"))
    return path


def test_help_shows_the_options_and_an_example():
    shown = explain("--help").stdout
    assert "headrace explain workerpool orders --namespace shop" in shown
    for option in ("--namespace", "--context", "--log", "--json"):
        assert option in shown


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "write workerpool NAME, or --log FILE"),
        (("workerpool",), "write workerpool NAME, or --log FILE"),
        (("taskqueue", "orders"), "invalid choice: 'taskqueue'"),
        (("workerpool", "orders", "--nonsense"), "unrecognized arguments: --nonsense"),
        (("--log", "-", "--context", "x"), "--context is for a pool in a cluster; leave it out with --log"),
    ],
)
def test_wrong_arguments_are_named(arguments, problem):
    done = explain(*arguments)
    assert done.returncode == 2
    assert problem in done.stderr


def test_without_the_operators_packages_it_says_what_to_install():
    program = "import sys; sys.modules['kubernetes'] = None; from headrace.cli.main import main; main(sys.argv[1:])"
    for command in ("explain", "operator"):
        done = subprocess.run(
            [sys.executable, "-c", program, command], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 2
        assert done.stderr == (
            f"headrace: {command}: is not installed here; install it with: pip install 'headrace[operator]'\n"
        )


# ── the kubeconfig ───────────────────────────────────────────────────────────────────────────────────


def test_a_cluster_that_does_not_answer(kubeconfig: Path):
    said = refused(explain("workerpool", "orders", kubeconfig=kubeconfig), 1)
    assert said.startswith("headrace: the API server at https://127.0.0.1:")
    assert "does not answer; check that the cluster runs and that --context names the right one" in said


def test_no_kubeconfig(tmp_path: Path):
    said = refused(explain("workerpool", "orders", kubeconfig=tmp_path / "none"), 2)
    assert said == f"headrace: kubeconfig: there is none at {tmp_path / 'none'}; name yours with KUBECONFIG"


@pytest.mark.parametrize("content", ["", "hello", "a: [", "contexts: 7", "contexts: [{name: one}]", "\x00"])
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, content: str):
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    said = refused(explain("workerpool", "orders", kubeconfig=path), 2)
    assert said.startswith(f"headrace: kubeconfig: {path} ")
    assert said.endswith("with KUBECONFIG")


@pytest.mark.parametrize(
    ("context", "problem"),
    [
        ("three", "headrace: --context: the kubeconfig has no context 'three'; choose one of those it has: one, two"),
        (None, "headrace: --context: the kubeconfig names no current context; choose one of those it has: one, two"),
    ],
)
def test_a_context_that_is_not_there(tmp_path: Path, context: str | None, problem: str):
    path = tmp_path / "kubeconfig"
    path.write_text(CONFIG.format(port=1, current="" if context is None else "current-context: one"))
    arguments = [] if context is None else ["--context", context]
    assert refused(explain("workerpool", "orders", *arguments, kubeconfig=path), 2) == problem


def test_a_context_of_a_user_that_is_not_there(kubeconfig: Path):
    said = refused(explain("workerpool", "orders", "--context", "two", kubeconfig=kubeconfig), 2)
    assert said.startswith(f"headrace: kubeconfig: {kubeconfig} cannot be used")


# ── a log ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_that_leads_to_the_same_results(tmp_path: Path):
    log = tmp_path / "operator.log"
    log.write_text(f"noise\n{line(UP)}\n{line(UP)}\n")
    for done in (explain("--log", str(log)), explain("--log", "-", stdin=log.read_text())):
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("2 decisions: the figures lead to the same result again.\n")


def test_a_log_with_a_line_that_does_not():
    done = explain("--log", "-", stdin=f"{line(UP)}\n{line(UP, replicas=7)}\n")
    assert (done.returncode, done.stderr) == (1, "")
    assert "  line 2: the log says 7 (Backlog, 6 needed), and its figures lead to 6 (Backlog, 6 needed)" in done.stdout


def test_a_log_without_decisions():
    said = refused(explain("--log", "-", "workerpool", "other", stdin=line(UP)), 2)
    assert said.startswith("headrace: --log: has no decision in it (of this pool, if you named one); give the log of ")


def test_a_log_that_cannot_be_read(tmp_path: Path):
    said = refused(explain("--log", str(tmp_path)), 2)
    assert said == f"headrace: --log: {tmp_path} cannot be read (Is a directory); name a file, or - for input"
