"""Which listeners of a Cluster the API server rejects, with which message, and which it accepts."""

from __future__ import annotations

import pytest

from support.kube.control_plane import ControlPlane
from support.kube.specs import BALANCED, NODES, Spec, cluster, without

pytestmark = pytest.mark.slow


NO_HOSTS = ("a b", "a_b", "$(POD_IP)", "{number}.example.com", "fd00::1", "one:9310", ".a", "a..b", "a@b")


@pytest.mark.parametrize(
    ("listeners", "sentence"),
    [
        ([without(NODES, "name")], "spec.listeners[0].name: Required value"),
        ([without(NODES, "port")], "listeners[0].port: Required value"),
        ([without(NODES, "type")], "listeners[0].type: Required value"),
        ([{**NODES, "tls": True}], 'unknown field "spec.listeners[0].tls"'),
        (
            [{**NODES, "name": f"a{number}", "port": 9310 + number} for number in range(5)],
            "spec.listeners: Too many: 5: must have at most 4 items",
        ),
        ([NODES, {**BALANCED, "name": "outside"}], 'spec.listeners[1]: Duplicate value: {"name":"outside"}'),
        ([NODES, {**BALANCED, "port": 9310}], "Two listeners have the same port. Each needs its own port of"),
        *(
            (
                [{**NODES, "name": name}],
                "The name of a listener must begin with a letter and may contain only",
            )
            for name in ("", "1st", "Outside", "out_side", "out-", "-out", "a--b")
        ),
        ([{**NODES, "name": "a" * 16}], "spec.listeners[0].name: Too long: may not be more than 15"),
        *(
            (
                [{**NODES, "name": name}],
                "internal, peer, peers, clients and http are reserved names of the brokers'",
            )
            for name in ("internal", "peer", "peers", "clients", "http")
        ),
        ([{**NODES, "port": 1023}], "spec.listeners[0].port in body should be greater than or equal to 1024"),
        ([{**NODES, "port": 65536}], "spec.listeners[0].port in body should be less than or equal to 65535"),
        *(
            ([{**NODES, "port": port}], "9210, 9211 and 9212 are reserved for the brokers' own ports")
            for port in (9210, 9211, 9212)
        ),
        ([{**NODES, "type": "ClusterIP"}], 'spec.listeners[0].type: Unsupported value: "ClusterIP"'),
        ([without(NODES, "firstNodePort")], "A listener of the type NodePort needs firstNodePort"),
        (
            [{**BALANCED, "firstNodePort": 30000}],
            "Only a listener of the type NodePort may have firstNodePort",
        ),
        (
            [{**NODES, "firstNodePort": 29999}],
            "spec.listeners[0].firstNodePort in body should be greater than or equal to 30000",
        ),
        (
            [{**NODES, "firstNodePort": 32670}],
            "firstNodePort must be at most 32669: each of up to 99 brokers needs a port from there on",
        ),
        (
            [NODES, {**NODES, "name": "more", "port": 9311, "firstNodePort": 30098}],
            "The firstNodePort values of two listeners are less than 99 apart",
        ),
        (
            [NODES, {**NODES, "name": "more", "port": 9311}],
            "The firstNodePort values of two listeners are less than 99 apart",
        ),
        (
            [without(BALANCED, "host")],
            "A listener of the type LoadBalancer needs a host that contains {broker}",
        ),
        (
            [{**BALANCED, "host": "one.example.com"}],
            "needs a host that contains {broker}, for example broker-{broker}.",
        ),
        *(
            (
                [{**NODES, "host": host}],
                "host must be a DNS name or an IPv4 address; {broker} in it is replaced",
            )
            for host in NO_HOSTS
        ),
        ([{**NODES, "host": ""}], "spec.listeners[0].host in body should be at least 1 chars long"),
        (
            [{**NODES, "annotations": {"tidelog.io/manifest": "mine"}}],
            "Annotations that begin with tidelog.io/ are reserved for the operator",
        ),
        (
            [{**NODES, "loadBalancerClass": "fast"}],
            "Only a listener of the type LoadBalancer may have loadBalancer",
        ),
        (
            [{**NODES, "sourceRanges": ["10.0.0.0/8"]}],
            "Only a listener of the type LoadBalancer may have sourceRanges",
        ),
        ([{**BALANCED, "sourceRanges": []}], "spec.listeners[0].sourceRanges in body should have at least 1"),
        ([{**BALANCED, "sourceRanges": ["10.0.0.1"]}], "spec.listeners[0].sourceRanges[0]: Invalid value"),
    ],
)
def test_impossible_listeners_are_rejected(plane: ControlPlane, listeners: list[Spec], sentence: str) -> None:
    manifest = cluster(listeners=listeners)

    assert sentence in plane.created(manifest)


@pytest.mark.parametrize(
    "listeners",
    [
        [],
        [NODES, BALANCED],
        [{**NODES, "name": "a", "port": 1024, "firstNodePort": 32669, "host": "10.0.0.1"}],
        [NODES, {**NODES, "name": "a-long-name-15b", "port": 65535, "firstNodePort": 30099}],
        [
            {
                **NODES,
                "host": "node{broker}.{broker}.example.com",
                "annotations": {"example.com/for": "{broker}"},
            }
        ],
        [
            {
                **BALANCED,
                "loadBalancerClass": "service.k8s.aws/nlb",
                "sourceRanges": ["203.0.113.0/24", "fd00::/8"],
                "annotations": {"external-dns.alpha.kubernetes.io/hostname": "broker-{broker}.example.com"},
            }
        ],
    ],
)
def test_possible_listeners_are_accepted(plane: ControlPlane, listeners: list[Spec]) -> None:
    manifest = cluster(listeners=listeners)

    assert not plane.created(manifest)

    assert plane.object("Cluster", manifest["metadata"]["name"])["spec"]["listeners"] == listeners
