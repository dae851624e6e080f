"""A private Prometheus for tests: a real process on a free port, and a page for it to read."""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.dashboard.prometheus import Prometheus, PrometheusProblem
from tests.cluster.process import mortal
from tests.support.redis_server import HOST, free_port
from tests.support.waiting import wait_until

SCRAPE_INTERVAL_S = 1
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0


@contextlib.contextmanager
def metrics_page(text: Callable[[], bytes]) -> Iterator[int]:
    """A port on which ``/metrics`` answers with what ``text`` gives at that moment."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # a Prometheus that ends does not wait for an answer
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer((HOST, 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def prometheus_server(*target_ports: int) -> Iterator[Prometheus]:
    """A Prometheus that reads these pages, and keeps their own labels."""
    folder = Path(tempfile.mkdtemp(prefix="hr-prometheus-"))
    port = free_port()
    targets = {"targets": [f"{HOST}:{each}" for each in target_ports]}
    config = {
        "global": {"scrape_interval": f"{SCRAPE_INTERVAL_S}s", "scrape_timeout": f"{SCRAPE_INTERVAL_S}s"},
        "scrape_configs": [{"job_name": "headrace", "honor_labels": True, "static_configs": [targets]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML, too
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address={HOST}:{port}"]
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(mortal(command), stdout=output, stderr=output)
    try:
        prometheus = Prometheus(f"http://{HOST}:{port}")
        wait_until(lambda: _answers(prometheus), _START_TIMEOUT_S, "Prometheus did not answer")
        yield prometheus
    finally:
        process.terminate()
        process.wait(_STOP_TIMEOUT_S)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(prometheus: Prometheus) -> bool:
    try:
        return bool(prometheus.now("up == 1"))
    except PrometheusProblem:
        return False
