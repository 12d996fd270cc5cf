"""The metrics of the operator, and the address at which it serves them."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest

from support.kube.situations import NAMESPACE
from tidelog_operator.http import HttpServer, ListenError, parse_address
from tidelog_operator.model import ObjectKey
from tidelog_operator.reporting.metrics import Metrics, request_kind


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/apis/tidelog.io/v1alpha1/namespaces/shop/streams", ("list", "streams")),
        ("GET", "/apis/tidelog.io/v1alpha1/streams", ("list", "streams")),
        ("PATCH", "/apis/tidelog.io/v1alpha1/namespaces/shop/streams/a", ("patch", "streams")),
        ("PATCH", "/apis/tidelog.io/v1alpha1/namespaces/shop/streams/a/status", ("patch", "streams/status")),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/x/leases/tidelog", ("get", "leases")),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/x/leases/tidelog", ("update", "leases")),
        ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events", ("create", "events")),
        ("DELETE", "/api/v1/namespaces/shop/pods/a", ("delete", "pods")),
        ("GET", "/api/v1/nodes", ("list", "nodes")),
        ("GET", "/api/v1/namespaces", ("list", "namespaces")),
        ("GET", "/api/v1/namespaces/shop", ("get", "namespaces")),
        ("GET", "/version", ("get", "other")),
        ("GET", "/apis", ("get", "other")),
    ],
)
def test_a_request_counts_by_verb_and_resource(method: str, path: str, kind: tuple[str, str]) -> None:
    assert request_kind(method, path) == kind


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"tidelog_operator_{name}", labels)


def test_passes_are_counted_by_cluster_until_the_cluster_is_deleted() -> None:
    metrics = Metrics()
    labels = {"namespace": NAMESPACE, "cluster": "main"}
    key = ObjectKey(NAMESPACE, "main")

    metrics.passed(key, 0.5, failed=False)
    metrics.passed(key, 1.5, failed=True)

    assert value(metrics, "pass_seconds_count", **labels) == 2
    assert value(metrics, "pass_seconds_sum", **labels) == 2.0
    assert value(metrics, "failed_passes_total", **labels) == 1
    metrics.forget(key)
    metrics.forget(key)
    assert value(metrics, "pass_seconds_count", **labels) is None
    assert value(metrics, "failed_passes_total", **labels) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("9215", "Write host:port"),
        (":9215", "Write host:port"),
        ("localhost", "Write host:port"),
        ("localhost:", "'' in .* is not a port"),
        ("localhost:http", "'http' in .* is not a port"),
        ("localhost:65536", "'65536' in .* is not a port"),
    ],
)
def test_an_invalid_address_is_rejected_with_an_explanation(text: str, sentence: str) -> None:
    with pytest.raises(ListenError, match=sentence):
        parse_address(text)


def test_the_command_rejects_an_invalid_address_and_does_not_start() -> None:
    command = [sys.executable, "-m", "tidelog_operator", "run", "--lease-namespace", "x", "--metrics", "9215"]

    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert "Invalid value for --metrics: '9215' is not an address" in ended.stderr


@pytest.mark.parametrize(
    ("text", "address"), [("127.0.0.1:9215", ("127.0.0.1", 9215)), ("[::]:0", ("::", 0))]
)
def test_an_address_has_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


async def test_an_address_in_use_is_rejected_with_an_explanation() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        door: Any = HttpServer("127.0.0.1", taken.getsockname()[1], Metrics().registry, lambda: "")
        with pytest.raises(
            ListenError, match="Address already in use\\. Choose another address, or an empty one"
        ):
            await door.__aenter__()
