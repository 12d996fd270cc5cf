"""The plan of listeners for clients outside of Kubernetes: advertised addresses, and a service per broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.kube.containers import expand
from support.kube.imagined import SET, Kubernetes, every
from support.kube.situations import CLUSTER, CLUSTER_UID, Brokers, stream
from tidelog_broker.listener_addresses import parse_listen
from tidelog_operator import actions as do
from tidelog_operator.model import ObjectKey, UnreadableCluster, read_cluster
from tidelog_operator.resources.stateful_set import Pods, stateful_set

Said = dict[str, Any]

NODES: Said = {"name": "outside", "port": 9310, "type": "NodePort", "firstNodePort": 30000}
CLOUD: Said = {
    "name": "cloud",
    "port": 9320,
    "type": "LoadBalancer",
    "host": "broker-{broker}.example.com",
    "annotations": {"external-dns.alpha.kubernetes.io/hostname": "broker-{broker}.example.com"},
    "loadBalancerClass": "example.com/fast",
    "sourceRanges": ["203.0.113.0/24"],
}


def services(kube: Kubernetes) -> dict[str, Said]:
    """Returns the services of listeners."""
    return {
        name: one
        for (kind, name), one in kube.objects.items()
        if kind == "Service" and "tidelog.io/listener" in one["metadata"]["labels"]
    }


def names(*listeners: str, brokers: int = 3) -> set[str]:
    return {f"{CLUSTER}-{one}-{number}" for one in listeners for number in range(brokers)}


def node_ports(kube: Kubernetes) -> dict[str, int]:
    return {name: one["spec"]["ports"][0]["nodePort"] for name, one in services(kube).items()}


def settled(*listeners: Said, brokers: int = 3) -> tuple[Kubernetes, Brokers]:
    kube, there = Kubernetes(listeners=list(listeners), brokers=brokers), Brokers(brokers)
    kube.settle(there)
    return kube, there


def change(kube: Kubernetes, *listeners: Said) -> None:
    kube.manifest["spec"]["listeners"] = list(listeners)


# --- settings of brokers


def container(*listeners: Said) -> Said:
    kube = Kubernetes(listeners=list(listeners))
    (found,) = stateful_set(kube.cluster, Pods(3))["spec"]["template"]["spec"]["containers"]
    return dict(found)


def advertised(broker: int, *listeners: Said) -> list[str]:
    """Returns the addresses that a broker advertises on a node with the address 192.0.2.7."""
    known: dict[str, str] = {}
    fields = {
        "metadata.name": f"{CLUSTER}-{broker}",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(broker),
        "status.hostIP": "192.0.2.7",
    }
    for one in container(*listeners)["env"]:
        if "value" in one:
            known[one["name"]] = expand(one["value"], known)
        else:
            known[one["name"]] = fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
    found = [parse_listen(spec, broker) for spec in json.loads(known["TIDELOG_LISTENERS"])]
    return [f"{name}={host}:{port}@{to}:{at}" for name, host, port, to, at, _ in found]


def test_each_broker_advertises_its_own_service_after_the_internal_listener() -> None:
    inside = "internal=0.0.0.0:9210@main-2.main-brokers.shop.svc:9210"

    assert advertised(2) == [inside]
    assert advertised(2, NODES, CLOUD) == [
        inside,
        "outside=0.0.0.0:9310@192.0.2.7:30002",
        "cloud=0.0.0.0:9320@broker-2.example.com:9320",
    ]
    assert advertised(2, {**NODES, "host": "{broker}.farm.{broker}"})[1:] == [
        "outside=0.0.0.0:9310@2.farm.2:30002"
    ]


def test_the_container_has_one_port_more_for_each_listener() -> None:
    more = [one for one in container(NODES, CLOUD)["ports"] if one not in container()["ports"]]

    assert more == [{"name": "outside", "containerPort": 9310}, {"name": "cloud", "containerPort": 9320}]
    # Nothing that would replace brokers without listeners.
    assert "NODE_ADDRESS" not in [one["name"] for one in container()["env"]]
    assert "NODE_ADDRESS" not in [one["name"] for one in container({**NODES, "host": "one"}, CLOUD)["env"]]


@pytest.mark.parametrize(
    ("after", "restarts"),
    [
        ([], True),
        ([NODES, CLOUD], True),
        ([{**NODES, "firstNodePort": 31000}], True),
        ([{**NODES, "port": 9311}], True),
        ([{**NODES, "host": "broker-{broker}"}], True),
        ([{**NODES, "annotations": {"a": "b"}}], False),
    ],
)
def test_a_listener_change_replaces_brokers_only_if_they_need_it(after: list[Said], restarts: bool) -> None:
    kube, brokers = settled(NODES)
    before = kube.objects[SET]["spec"]["template"]

    change(kube, *after)
    kube.settle(brokers)

    assert (kube.objects[SET]["spec"]["template"] != before) == restarts


# --- services


def test_every_broker_has_a_service_of_its_own_for_each_listener() -> None:
    kube, _ = settled(NODES, CLOUD)

    assert services(kube).keys() == names("outside", "cloud")
    outside, cloud = (services(kube)[f"main-{name}-1"] for name in ("outside", "cloud"))
    selected = {
        "app.kubernetes.io/name": "tidelog-broker",
        "tidelog.io/cluster": "main",
        "statefulset.kubernetes.io/pod-name": "main-1",
    }
    assert outside["spec"] == {
        "type": "NodePort",
        "selector": selected,
        "externalTrafficPolicy": "Local",
        "publishNotReadyAddresses": True,
        "ports": [
            {
                "name": "outside", "port": 9310, "targetPort": "outside", "appProtocol": "grpc",
                "nodePort": 30001,
            }
        ],
    }  # fmt: skip
    del cloud["spec"]["ports"][0]["nodePort"]
    assert cloud["spec"] == {
        "type": "LoadBalancer",
        "selector": selected,
        "externalTrafficPolicy": "Local",
        "publishNotReadyAddresses": True,
        "ports": [{"name": "cloud", "port": 9320, "targetPort": "cloud", "appProtocol": "grpc"}],
        "loadBalancerClass": "example.com/fast",
        "loadBalancerSourceRanges": ["203.0.113.0/24"],
    }
    meta = cloud["metadata"]
    assert meta["annotations"]["external-dns.alpha.kubernetes.io/hostname"] == "broker-1.example.com"
    assert meta["labels"]["tidelog.io/listener"] == "cloud"
    assert meta["labels"]["tidelog.io/cluster"] == "main"
    assert meta["ownerReferences"][0]["uid"] == CLUSTER_UID


def test_nothing_is_planned_in_the_desired_state() -> None:
    kube, brokers = settled(NODES, CLOUD)

    assert every(kube.plan(brokers.view())) == ()
    assert every(kube.plan(None)) == ()


def test_services_come_last_and_need_no_answer_of_a_broker() -> None:
    kube = Kubernetes(listeners=[NODES])

    decision = kube.plan(None)

    assert [type(one) for one in decision.independent] == [do.ApplyObject] * 3
    last = decision.actions[-1]
    assert isinstance(last, do.ApplyObject)
    assert last.manifest["kind"] == "StatefulSet"


def test_services_exist_from_before_a_pod_until_after_it() -> None:
    kube, brokers = settled(NODES, CLOUD)
    brokers.streams["orders"] = stream("orders", [(0, 1, 2)] * 6)

    kube.manifest["spec"]["brokers"] = 5
    kube.settle(brokers)
    assert services(kube).keys() == names("outside", "cloud", brokers=5)
    kube.manifest["spec"]["brokers"] = 3
    kube.settle(brokers)

    assert services(kube).keys() == names("outside", "cloud")
    assert sorted(name for name, _ in kube.goodbyes) == [
        "main-cloud-3", "main-cloud-4", "main-outside-3", "main-outside-4",
    ]  # fmt: skip
    assert all(int(name.rpartition("-")[2]) >= pods for name, pods in kube.goodbyes)


def test_removed_pods_keep_their_services() -> None:
    kube, brokers = settled(NODES)

    kube.objects[SET]["spec"]["replicas"] = 1
    kube.settle(brokers)

    assert kube.goodbyes == []
    assert kube.pods == Pods(3)


def test_only_the_services_of_a_removed_listener_are_deleted() -> None:
    kube, brokers = settled(NODES, CLOUD)
    mine = services(kube)["main-outside-0"]

    def beside(name: str, **changes: Any) -> None:
        meta = {**mine["metadata"], "name": name, "uid": f"of-{name}", **changes}
        port = {**mine["spec"]["ports"][0], "nodePort": 31000 + len(kube.objects)}
        spec = {**mine["spec"], "ports": [port]}
        kube.objects["Service", name] = {**mine, "metadata": meta, "spec": spec}

    (owner,) = mine["metadata"]["ownerReferences"]
    beside("without-the-label", labels={"tidelog.io/cluster": CLUSTER})
    beside("of-nobody", ownerReferences=[])
    beside("of-an-earlier-cluster", ownerReferences=[{**owner, "uid": "earlier"}])
    beside("of-another-controller", ownerReferences=[{**owner, "controller": False}])
    change(kube, CLOUD)

    assert [one for one in kube.plan(None).independent if isinstance(one, do.DeleteObject)] == [
        do.DeleteObject("Service", ObjectKey("shop", name), services(kube)[name]["metadata"]["uid"])
        for name in sorted(names("outside"))
    ]
    kube.settle(brokers)
    assert {name for name, _ in kube.goodbyes} == names("outside")


def test_a_change_in_place_keeps_the_address() -> None:
    kube, brokers = settled(NODES, CLOUD)
    before = {name: one["metadata"]["uid"] for name, one in services(kube).items()}

    change(kube, {**NODES, "port": 9311, "annotations": {"a": "{broker}"}}, {**CLOUD, "sourceRanges": []})
    kube.settle(brokers)

    found = services(kube)
    assert {name: one["metadata"]["uid"] for name, one in found.items()} == before
    assert found["main-outside-2"]["metadata"]["annotations"]["a"] == "2"
    assert found["main-outside-2"]["spec"]["ports"][0]["port"] == 9311
    assert "loadBalancerSourceRanges" not in found["main-cloud-0"]["spec"]


MORE: Said = {**NODES, "name": "more", "port": 9311, "firstNodePort": 30100}
MOVES = [
    [{**NODES, "firstNodePort": 30001}, MORE],
    [{**NODES, "firstNodePort": 30100}, {**MORE, "firstNodePort": 30001}],
    [{**MORE, "name": "renamed"}],
    [NODES, CLOUD],
    [{**CLOUD, "name": "outside"}, {**MORE, "firstNodePort": 30000}],
    [{**NODES, "firstNodePort": 31000}, {**CLOUD, "loadBalancerClass": ""}],
    [],
]


def test_ports_can_be_exchanged_between_services() -> None:
    """The simulated API server, like the real one, assigns a port to only one service."""
    kube, brokers = settled(NODES, MORE)

    for listeners in MOVES:
        change(kube, *listeners)
        kube.settle(brokers)

        assert services(kube).keys() == names(*(one["name"] for one in listeners))
        for one in listeners:
            if one["type"] == "NodePort":
                first = one["firstNodePort"]
                ports = [node_ports(kube)[f"main-{one['name']}-{number}"] for number in range(3)]
                assert ports == [first, first + 1, first + 2]


@pytest.mark.parametrize("crash_at", range(30))
def test_wherever_the_operator_is_killed_the_end_is_the_same(crash_at: int) -> None:
    kube, brokers = Kubernetes(listeners=[NODES, MORE]), Brokers(3)
    kube.settle(brokers, crash_at=crash_at)
    brokers.streams["orders"] = stream("orders", [(0, 1, 2)] * 6)

    for wanted, listeners in zip((5, 3, 5, 4, 3, 5, 4), MOVES, strict=True):
        kube.manifest["spec"]["brokers"] = wanted
        change(kube, *listeners)
        kube.settle(brokers, crash_at=crash_at)

        assert kube.pods == Pods(wanted)
        assert services(kube).keys() == names(*(one["name"] for one in listeners), brokers=wanted)
        assert every(kube.plan(kube.view(brokers))) == ()


def test_an_operator_killed_after_each_action_reaches_the_desired_state() -> None:
    kube, brokers = Kubernetes(listeners=[NODES, MORE]), Brokers(3)
    brokers.streams["orders"] = stream("orders", [(0, 1, 2)] * 6)
    for wanted, listeners in zip((3, 5, 4, 3, 5, 4, 3), MOVES, strict=True):
        kube.manifest["spec"]["brokers"] = wanted
        change(kube, *listeners)
        kube.crawl(brokers)

        assert kube.pods == Pods(wanted)
        assert services(kube).keys() == names(*(one["name"] for one in listeners), brokers=wanted)


def test_a_service_that_is_being_deleted_is_not_touched() -> None:
    kube, brokers = settled(CLOUD)
    change(kube)
    for action in kube.plan(brokers.view()).independent:
        kube.do(action)

    gone = kube.plan(brokers.view()).independent
    change(kube, {**CLOUD, "sourceRanges": []})
    back = kube.plan(brokers.view()).independent

    assert (gone, back) == ((), ())
    kube.lose_balancers()
    assert len(kube.plan(brokers.view()).independent) == 3


def test_an_unknown_listener_type_makes_the_cluster_unreadable() -> None:
    kube = Kubernetes(listeners=[{**NODES, "type": "Gateway"}])

    found = read_cluster(kube.manifest)

    assert isinstance(found, UnreadableCluster)
    assert "listeners.type is 'Gateway', but must be one of NodePort, LoadBalancer" in found.why
