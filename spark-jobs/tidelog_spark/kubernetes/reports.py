"""The report of a job, for the operator: served by HTTP while the job runs, and left as its last words."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

MESSAGE_BYTES_MAX: Final = 4096
"""Kubernetes keeps this much of a termination message."""
WORDS_CHARACTERS_MAX: Final = 600
"""Characters of the job's last words; with escapes they need up to six bytes each."""

SHORT: Final = ("rows", "batches", "lag", "lastBatchAt", "finishedAt")
"""What the termination message has of the report, besides offsets."""

ANSWER_SECONDS_MAX: Final = 10.0

NOT_FOUND: Final = 404
OK: Final = 200


def read_report(path: Path) -> dict[str, Any]:
    """Returns the report that the job has written last; empty: it has written none."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def last_words(report: dict[str, Any], message: str) -> bytes:
    """Returns the termination message: the report with the job's last sentence, as JSON. If the offsets make
    it too long, it has none."""
    if len(message) > WORDS_CHARACTERS_MAX:
        message = f"{message[: WORDS_CHARACTERS_MAX - 1]}…"
    numbers = {name: report[name] for name in SHORT if name in report}
    for offsets in ({"offsets": report.get("offsets")}, {}):
        text = json.dumps({**numbers, **offsets, "message": message}).encode()
        if len(text) <= MESSAGE_BYTES_MAX:
            return text
    return json.dumps({"message": message}).encode()


class ReportServer:
    """Serves the report at /report; a context manager."""

    def __init__(self, report: Path, port: int, host: str = "") -> None:
        """`host`: empty: all addresses of the pod. `port`: 0: any free one."""

        class Handler(BaseHTTPRequestHandler):
            timeout = ANSWER_SECONDS_MAX

            def do_GET(self) -> None:
                found = self.path == "/report"
                body = json.dumps(read_report(report)).encode() if found else b"{}"
                self.send_response(OK if found else NOT_FOUND)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """The operator asks every few seconds; the log is the job's."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="reports", daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def __enter__(self) -> ReportServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
