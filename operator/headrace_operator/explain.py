"""``headrace explain``: why a WorkerPool has as many pods as it has.

What belongs here: arguments, the kubeconfig, the request, the file, and mistakes in one sentence each. What is said is
built by `explaining`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.kube_config import (
    ENV_KUBECONFIG_PATH_SEPARATOR,
    KUBE_CONFIG_DEFAULT_LOCATION,
    KubeConfigMerger,
)

from headrace.model.errors import HeadraceError, InvalidInput
from headrace.observability.logs import configure_foreign_logs, configure_logs

from .explaining import pool_facts, pool_lines, replay, replay_facts, replay_lines
from .kube import WORKER_POOLS, ApiProblem, Kube
from .options import SERVICE_ACCOUNT

_DEFAULT_NAMESPACE: Final = "default"
# What a kubeconfig that is no kubeconfig leads to, in a client that takes it for one.
_CONFIG_ERRORS: Final = (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError)


class Unanswered(HeadraceError):
    """Raised when the API server does not say what was asked for."""


def main(arguments: Sequence[str]) -> None:
    """Run ``headrace explain``; returns, or raises one of Headrace's errors, or exits with 1."""
    parser = _parser()
    options = parser.parse_args(arguments)
    # What is logged is not what was asked for; only what went wrong is worth a line.
    configure_logs("error")
    configure_foreign_logs("critical")
    if options.log is not None:
        if options.context is not None:
            parser.error("--context is for a pool in a cluster; leave it out with --log")
        _explain_log(options)
    elif options.name is None:
        parser.error("write workerpool NAME, or --log FILE")
    else:
        asyncio.run(_explain_pool(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace explain",
        description=(
            "Say why a WorkerPool has as many pods as it has, from what the operator has written into its status; "
            "or make the decisions of an operator's log again."
        ),
        epilog=(
            "Examples: headrace explain workerpool orders --namespace shop; "
            "kubectl --namespace headrace-system logs deployment/headrace-operator | headrace explain --log -"
        ),
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("kind", nargs="?", choices=("workerpool", "wp"), metavar="workerpool", help="what is to be explained")
    add("name", nargs="?", metavar="NAME", help="the WorkerPool's name; with --log, only its decisions count")
    add("-n", "--namespace", metavar="NAME", help="where it is; without it, the namespace of the context")
    add("--context", metavar="NAME", help="a context of the kubeconfig; without it, the current one")
    add("--log", metavar="FILE", help="read the operator's JSON log from this file, or from standard input with -")
    add("--json", action="store_true", help="answer in JSON, for programs")
    return parser


def _say(lines: Sequence[str], facts: object, *, as_json: bool) -> None:
    text = json.dumps(facts, indent=2) if as_json else "\n".join(lines)
    sys.stdout.write(f"{text}\n")


# ── a log ────────────────────────────────────────────────────────────────────────────────────────────


def _explain_log(options: argparse.Namespace) -> None:
    found = replay(_log_lines(options.log), namespace=options.namespace, name=options.name)
    if not found:
        raise InvalidInput(
            "--log",
            "has no decision in it (of this pool, if you named one); give the log of the operator that leads, "
            "in JSON (--log-style json), from a time at which a number of pods was changed",
        )
    _say(replay_lines(found), replay_facts(found), as_json=options.json)
    if any(each.problem is not None for each in found):
        sys.exit(1)


def _log_lines(path: str) -> list[str]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidInput("--log", f"{path} cannot be read ({error.strerror}); name a file, or - for input") from error
    return text.splitlines()


# ── a pool ───────────────────────────────────────────────────────────────────────────────────────────


async def _explain_pool(options: argparse.Namespace) -> None:
    configuration, namespace = await _configured(options.context)
    namespace = options.namespace or namespace
    async with ApiClient(configuration=configuration) as api:
        body = await _fetched(Kube(api), namespace, options.name, str(configuration.host))
    _say(pool_lines(body), pool_facts(body), as_json=options.json)


async def _fetched(kube: Kube, namespace: str, name: str, server: str) -> dict[str, Any]:
    try:
        found = await kube.find(WORKER_POOLS, namespace, name)
        if found is not None:
            return found
        others = [str(each["metadata"]["name"]) for each in await kube.list(WORKER_POOLS, namespace)]
    except ApiProblem as problem:
        _refuse(problem, namespace, server)
    where = f"there is no WorkerPool {name!r} in namespace {namespace!r}"
    if not others:
        raise InvalidInput("NAME", f"{where}, nor any other; name the namespace with --namespace")
    raise InvalidInput("NAME", f"{where}; those that exist there are {', '.join(sorted(others))}")


def _refuse(problem: ApiProblem, namespace: str, server: str) -> NoReturn:
    """The problem as a sentence that says what to do."""
    if problem.status == 0:
        raise Unanswered(
            f"the API server at {server} does not answer; check that the cluster runs and that --context "
            f"names the right one ({problem.message})"
        ) from problem
    if problem.status == 401:
        raise Unanswered(
            f"the API server at {server} does not know you; log in again, or name another --context"
        ) from problem
    if problem.status == 403:
        raise Unanswered(
            f"you may not read WorkerPools in namespace {namespace!r}; ask for the right to get and list "
            f"workerpools.headrace.dev there ({problem.message})"
        ) from problem
    if problem.is_missing:
        raise Unanswered(
            f"the cluster at {server} has no WorkerPools; install the CRDs with: "
            "kubectl apply --server-side --filename crds/"
        ) from problem
    raise Unanswered(f"the API server at {server} says: {problem.message}") from problem


# ── the kubeconfig ───────────────────────────────────────────────────────────────────────────────────


async def _configured(context: str | None) -> tuple[Configuration, str]:
    """How to reach the API server, and the namespace that is meant when none is named.

    The kubeconfig comes first, as for kubectl; a pod without one has its service account.
    """
    configuration = Configuration()
    if context is None and not _has_kubeconfig():
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except ConfigException as error:
            raise InvalidInput(
                "kubeconfig", f"there is none at {KUBE_CONFIG_DEFAULT_LOCATION}; name yours with KUBECONFIG"
            ) from error
        return configuration, _own_namespace()
    try:
        # The client's own list of contexts is to be had only where one of them is the current one.
        known = KubeConfigMerger(KUBE_CONFIG_DEFAULT_LOCATION).config  # type: ignore[no-untyped-call]
        namespaces = {str(each["name"]): each["context"].safe_get("namespace") for each in known.value["contexts"]}
        name = context or known.value.get("current-context")
        if name in namespaces:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                context=name, client_configuration=configuration, persist_config=False
            )
            return configuration, str(namespaces[name] or _DEFAULT_NAMESPACE)
    except _CONFIG_ERRORS as error:
        raise InvalidInput(
            "kubeconfig",
            f"{KUBE_CONFIG_DEFAULT_LOCATION} cannot be used ({_in_one_line(error)}); correct it, or name another one "
            "with KUBECONFIG",
        ) from error
    if not namespaces:
        raise InvalidInput(
            "kubeconfig", f"{KUBE_CONFIG_DEFAULT_LOCATION} has no contexts; name another with KUBECONFIG"
        )
    problem = f"the kubeconfig has no context {name!r}" if name else "the kubeconfig names no current context"
    raise InvalidInput("--context", f"{problem}; choose one of those it has: {', '.join(sorted(namespaces))}")


def _has_kubeconfig() -> bool:
    places = KUBE_CONFIG_DEFAULT_LOCATION.split(ENV_KUBECONFIG_PATH_SEPARATOR)
    return any(place and Path(place).expanduser().exists() for place in places)


def _own_namespace() -> str:
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE


def _in_one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
