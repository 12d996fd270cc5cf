"""How the simulated nodes read the manifest of a pod, compared with Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.kube.containers import NotYet, Surroundings, broker_container, expand

POD: dict[str, Any] = {
    "metadata": {
        "name": "main-1",
        "namespace": "shop",
        "uid": "one",
        "labels": {"apps.kubernetes.io/pod-index": "1"},
    },
    "spec": {"nodeName": "node-a", "containers": []},
}
ADDRESSES = {("shop", "main-0"): "127.1.1.1", ("shop", "main-1"): "127.1.1.2"}
FOLDERS = {
    "/data": Path("/tmp/test/claim"),
    "/etc/tidelog": Path("/tmp/test/settings"),
    "/etc/tidelog-formation": Path("/tmp/test/formation"),
    "/tmp": Path("/tmp/test/tmp"),
}


def field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def surroundings() -> Surroundings:
    return Surroundings(POD, "127.1.1.2", FOLDERS, lambda namespace, pod: ADDRESSES[namespace, pod])


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("plain", "plain"),
        ("0.0.0.0:9211", "127.1.1.2:9211"),
        ("10.0.0.0.0", "10.0.0.0.0"),
        ("main-0.main-brokers.shop.svc:9212", "127.1.1.1:9212"),
        ("main-0.main-brokers.shop.svc.cluster.local:9212", "127.1.1.1:9212"),
        (
            "main-0.main-brokers.shop.svc:9212,main-1.main-brokers.shop.svc:9212",
            "127.1.1.1:9212,127.1.1.2:9212",
        ),
        (
            '["internal=0.0.0.0:9210@main-1.main-brokers.shop.svc:9210"]',
            '["internal=127.1.1.2:9210@127.1.1.2:9210"]',
        ),
        ("nats://nats.shop.svc:4222", "nats://nats.shop.svc:4222"),
        ("data_dir: /data/log", "data_dir: /tmp/test/claim/log"),
        ("/data", "/tmp/test/claim"),
        ("/database", "/database"),
        ("/var/data", "/var/data"),
        ("--config=/etc/tidelog/broker.yaml", "--config=/tmp/test/settings/broker.yaml"),
        ("/etc/tidelog-formation/state", "/tmp/test/formation/state"),
        ("/tmp/a:/data/b", "/tmp/test/tmp/a:/tmp/test/claim/b"),
    ],
)
def test_texts_of_the_pod_are_mapped_to_this_machine(text: str, here: str) -> None:
    assert surroundings().resolve(text) == here


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A) and $(B)", "one and $(B)"),
        ("$$(A)", "$(A)"),
        ("$A", "$A"),
        ("$$$(A)", "$one"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expanded: str) -> None:
    assert expand(text, {"A": "one"}) == expanded


def test_a_process_has_the_environment_and_arguments_of_its_container() -> None:
    container = {
        "name": "broker",
        "command": ["tidelog-broker", "run", "--config", "/etc/tidelog/broker.yaml"],
        "args": ["--rack", "$(NODE)"],
        "env": [
            field("ID", "metadata.labels['apps.kubernetes.io/pod-index']"),
            field("POD_NAME", "metadata.name"),
            field("NODE", "spec.nodeName"),
            field("IP", "status.podIP"),
            {"name": "PEERS", "value": "0.0.0.0:9212@$(POD_NAME).main-brokers.shop.svc:9212"},
            {"name": "EMPTY"},
        ],
    }

    assert surroundings().environment(container) == {
        "ID": "1",
        "POD_NAME": "main-1",
        "NODE": "node-a",
        "IP": "127.1.1.2",
        "PEERS": "127.1.1.2:9212@127.1.1.2:9212",
        "EMPTY": "",
    }
    assert surroundings().command(container) == [
        "tidelog-broker", "run", "--config", "/tmp/test/settings/broker.yaml", "--rack", "node-a",
    ]  # fmt: skip


def test_unsupported_fields_are_reported() -> None:
    secret = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "nats", "key": "password"}}}

    with pytest.raises(NotYet, match=r"PASSWORD: .* is not played here, only values and fieldRef"):
        surroundings().environment({"env": [secret]})


@pytest.mark.parametrize(
    ("container", "is_broker"),
    [
        ({"name": "broker", "command": ["tidelog-broker", "run"]}, True),
        ({"name": "broker", "command": ["sleep"]}, False),
        ({"name": "broker"}, False),
        ({"name": "other", "command": ["tidelog-broker", "run"]}, False),
    ],
)
def test_a_broker_is_recognised_by_its_container(container: dict[str, Any], is_broker: bool) -> None:
    pod = {"spec": {"containers": [{"name": "sidecar"}, container]}}

    assert (broker_container(pod) is not None) == is_broker
