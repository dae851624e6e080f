"""Writes down for Prometheus which operators and workers there are, each second.

Debian's Prometheus is built without what asks Kubernetes, so this runs beside it, and Prometheus reads what it writes.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAUSE_S = 1.0
_TIMEOUT_S = 10.0
_PORT = "health"


def pods(selector: str) -> list[dict[str, Any]]:
    """The pods of the whole cluster with these labels."""
    server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    request = urllib.request.Request(f"{server}/api/v1/pods?labelSelector={urllib.parse.quote(selector)}")
    request.add_header("Authorization", f"Bearer {(_ACCOUNT / 'token').read_text()}")
    trusted = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=trusted) as answer:
        found: list[dict[str, Any]] = json.load(answer)["items"]
    return found


def targets(job: str, found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those that run, as Prometheus wants them."""
    for pod in found:
        ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
        address, metadata = pod["status"].get("podIP"), pod["metadata"]
        if pod["status"]["phase"] != "Running" or address is None:
            continue
        labels = {"job": job, "namespace": metadata["namespace"], "pod": metadata["name"]}
        for port in ports:
            if port.get("name") == _PORT:
                yield {"targets": [f"{address}:{port['containerPort']}"], "labels": labels}


def main(file: Path, jobs: dict[str, str]) -> None:
    while True:
        try:
            found = [target for job, selector in jobs.items() for target in targets(job, pods(selector))]
        except OSError as error:
            # What is known stays; the API server may be away.
            print(f"cannot list pods: {error}", file=sys.stderr, flush=True)
        else:
            written = file.with_suffix(".new")
            written.write_text(json.dumps(found))
            written.rename(file)
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(argument.split(":", 1) for argument in sys.argv[2:]))
