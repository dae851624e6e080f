"""The Kubernetes API, as far as the operator uses it: plain manifests in and out.

Every request has a bound in time, and every failure is an `ApiProblem` that says what was asked for. The official
client brings configuration, certificates and tokens; its typed models would only be in the way of manifests that are
dicts anyway.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import structlog
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException

FIELD_MANAGER: Final = "headrace-operator"
SCALER: Final = "headrace-scaler"
"""In whose name replicas are set."""
API_GROUP: Final = "headrace.dev"
API_VERSION: Final = "v1alpha1"
_TIMEOUT_S: Final = 10.0

_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Resource:
    """A kind of object, as its URL names it."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = ["namespaces", namespace] if namespace is not None else []
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join([root, *(quote(part, safe="") for part in parts)])


TASK_QUEUES: Final = Resource(API_GROUP, API_VERSION, "taskqueues")
WORKER_POOLS: Final = Resource(API_GROUP, API_VERSION, "workerpools")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")
PODS: Final = Resource("", "v1", "pods")
SECRETS: Final = Resource("", "v1", "secrets")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts")
EVENTS: Final = Resource("", "v1", "events")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")


class ApiProblem(Exception):
    """Raised when the API server says no, or nothing. ``status`` is 0 when there was no answer."""

    def __init__(self, status: int, what: str, message: str) -> None:
        super().__init__(f"{what}: {message}")
        self.status = status
        self.message = message

    @property
    def is_missing(self) -> bool:
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        return self.status == 409

    @property
    def is_of_dying_namespace(self) -> bool:
        """Nothing can be made in a namespace that is being deleted, and nothing need be."""
        return self.status == 403 and "because it is being terminated" in self.message


class Kube:
    """The operator's requests."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api

    async def get(
        self, resource: Resource, namespace: str, name: str, subresource: str | None = None
    ) -> dict[str, Any]:
        return await self._ask("get", resource, namespace, name, subresource)

    async def find(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        """The object, or None when there is none."""
        try:
            return await self.get(resource, namespace, name)
        except ApiProblem as problem:
            if problem.is_missing:
                return None
            raise

    async def list(self, resource: Resource, namespace: str | None, labels: str = "") -> list[dict[str, Any]]:
        """All objects of a kind, of one namespace or of all."""
        query = {"labelSelector": labels} if labels else {}
        answer = await self._ask("list", resource, namespace, query=query)
        items: list[dict[str, Any]] = answer.get("items") or []
        return items

    async def apply(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply: the fields in ``body`` are ours from now on, all others are left alone."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        name = body["metadata"]["name"]
        return await self._ask("patch", resource, namespace, name, query=query, body=body, content_type=_APPLY)

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any], subresource: str | None = None
    ) -> dict[str, Any]:
        """Change some fields. A ``resourceVersion`` in the patch makes it conditional on nobody having been quicker."""
        query = {"fieldManager": SCALER if subresource == "scale" else FIELD_MANAGER}
        return await self._ask(
            "patch", resource, namespace, name, subresource, query=query, body=patch, content_type=_MERGE
        )

    async def create(
        self,
        resource: Resource,
        namespace: str,
        body: Mapping[str, Any],
        *,
        manager: str = FIELD_MANAGER,
        may_exist: bool = True,
    ) -> None:
        """Create it; with ``may_exist``, what is there already is left as it is."""
        try:
            await self._ask("create", resource, namespace, query={"fieldManager": manager}, body=body)
        except ApiProblem as problem:
            if not (problem.is_conflict and may_exist):
                raise

    async def replace(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> None:
        """Write the whole object, if it is still the one that was read."""
        query = {"fieldManager": FIELD_MANAGER}
        await self._ask("update", resource, namespace, body["metadata"]["name"], query=query, body=body)

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str) -> None:
        """Delete this very object; one that took its name meanwhile stays. Nothing happens when it is gone already."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._ask("delete", resource, namespace, name, body=body)
        except ApiProblem as problem:
            if not (problem.is_missing or problem.is_conflict):
                raise

    async def _ask(
        self,
        verb: str,
        resource: Resource,
        namespace: str | None,
        name: str | None = None,
        subresource: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        method = _METHODS[verb]
        what = f"{verb} {resource.plural}{f'/{subresource}' if subresource else ''} {namespace or '*'}/{name or ''}"
        _log.debug(
            "api request", verb=verb, group=resource.group, resource=resource.plural, subresource=subresource or "",
            namespace=namespace, name=name,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                request = await self.api.param_serialize(
                    method,
                    resource.path(namespace, name, subresource),
                    query_params=list((query or {}).items()),
                    header_params={"Accept": "application/json", "Content-Type": content_type},
                    body=body,
                    auth_settings=["BearerToken"],
                )
                response = await self.api.call_api(*request, _request_timeout=_TIMEOUT_S)
                raw: bytes = await response.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiProblem(0, what, f"the API server does not answer: {error!r}") from error
        answer = _decoded(raw)
        if response.status >= 400:
            raise ApiProblem(response.status, what, str(answer.get("message") or response.reason))
        return answer


def _decoded(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except ValueError:
        return {}  # something between us and the API server answered in its own words
    return found if isinstance(found, dict) else {}


async def connect() -> ApiClient:
    """A client with the pod's service account, or with the kubeconfig outside of a cluster."""
    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except ConfigException:
        await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return ApiClient(configuration=configuration)
