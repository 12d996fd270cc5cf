"""The Kubernetes objects of a Cluster, simulated for the tests of plans: actions of plans change them."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from support.kube.situations import CLUSTER, Brokers, cluster_manifest
from tidelog_operator import actions as do
from tidelog_operator.model import BrokerPod, Claim, ClusterObject, read_cluster
from tidelog_operator.plan.cluster import ClusterDecision, plan_cluster
from tidelog_operator.plan.owned import Owned
from tidelog_operator.plan.placement import BrokersView
from tidelog_operator.resources.naming import ManifestId
from tidelog_operator.resources.stateful_set import Pods, read_pods

NOW = "2026-01-01T00:10:00Z"
SET = ("StatefulSet", CLUSTER)

CLAIMS = [Claim(f"data-main-{number}", f"uid-{number}", number, "Bound", False) for number in range(3)]
"""The claims of three brokers."""


class Kubernetes:
    """The objects of the Cluster: versions increase, and a write with an old version is rejected."""

    def __init__(self, **spec: Any) -> None:
        self.manifest = cluster_manifest(**spec)
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.claims: list[Claim] = []
        self.pods_there: list[BrokerPod] = []
        self.mutated: dict[ManifestId, str] = {}
        self.lowest: str | None = None
        self.claims_made = 0
        self.made = 0
        """The number of objects created so far."""
        self.port = 32700
        """The node port that a load balancer got last."""
        self.goodbyes: list[tuple[str, int]] = []
        """Deleted services, with the desired number of pods at that moment."""
        self.over: set[str] = set()
        """Claims of unregistered brokers: no other broker must start with one."""
        self.executed: list[do.ClusterAction] = []
        self.history: list[tuple[int, str | None]] = []
        """The number of pods and the lowest allowed number, after each action."""

    @property
    def cluster(self) -> ClusterObject:
        found = read_cluster(self.manifest)
        assert isinstance(found, ClusterObject), found
        return found

    @property
    def owned(self) -> Owned:
        return Owned(self.objects, self.claims, self.pods_there, self.mutated, self.lowest)

    def plan(self, view: BrokersView | None = None, now: str = NOW) -> ClusterDecision:
        return plan_cluster(self.cluster, self.owned, view, now)

    def do(self, action: do.ClusterAction, brokers: Brokers | None = None) -> bool:
        """Executes an action and returns whether it changed anything."""
        self.executed.append(action)
        states = {} if brokers is None else dict(brokers.states)
        match action:
            case do.CreateObject(manifest):
                assert _name(manifest) not in self.objects
                self._write(manifest)
            case do.ApplyObject(manifest, version):
                there = self.objects.get(_name(manifest))
                assert not version or (there is not None and there["metadata"]["resourceVersion"] == version)
                self._write(manifest)
            case do.SetLowestCount(_, count):
                self.lowest = None if count is None else str(count)
            case do.UnregisterBroker(broker):
                assert brokers is not None
                if broker in brokers.states:
                    self.over |= {one.uid for one in self.claims if one.broker_id == broker}
                brokers.do(action)
            case do.CordonBroker() | do.UncordonBroker() | do.Reassign():
                assert brokers is not None
                brokers.do(action)
            case do.DeleteObject("PersistentVolumeClaim", _, uid):
                assert uid in self.over, "it may hold something"
                self.claims = [one for one in self.claims if one.uid != uid]
            case do.DeleteObject("Service", key, uid):
                self._delete_service(("Service", key.name), uid)
        self.history.append((self.pods.count if SET in self.objects else 0, self.lowest))
        if isinstance(action, do.UncordonBroker | do.UnregisterBroker):
            return brokers is not None and brokers.states != states
        return True

    def _write(self, manifest: Mapping[str, Any]) -> None:
        there = self.objects.get(_name(manifest))
        number = 1 if there is None else int(there["metadata"]["resourceVersion"]) + 1
        made = copy.deepcopy(dict(manifest))
        self.made += there is None
        uid = f"object-{self.made}" if there is None else there["metadata"]["uid"]
        made["metadata"] |= {"resourceVersion": str(number), "generation": number, "uid": uid}
        if made["kind"] == "Service":
            self._expose(made, there)
        if made["kind"] == "StatefulSet":
            # Its controller is fast.
            count = made["spec"]["replicas"]
            revision = json.dumps(made["spec"]["template"])
            made["status"] = {
                "observedGeneration": number, "readyReplicas": count,
                "currentRevision": revision, "updateRevision": revision,
            }  # fmt: skip
            self.pods_there = [
                BrokerPod(f"main-{each}", f"pod-{each}", each, "10.0.0.1", "a", ready=True, deleting=False)
                for each in range(count)
            ]
            for each in range(count):
                self._claim(each)
        self.objects[_name(manifest)] = made

    def _expose(self, made: dict[str, Any], there: Mapping[str, Any] | None) -> None:
        """Assigns node ports as the API server does: each to one service, load balancers included."""
        spec = made["spec"]
        if spec.get("type") == "LoadBalancer":
            self.port += there is None
            spec["ports"][0]["nodePort"] = self.port if there is None else _node_port(there)
        if there is not None:
            assert "deletionTimestamp" not in there["metadata"], "it is on its way out"
            assert there["spec"].get("type") == spec.get("type"), "it keeps ports of its old type"
        port = _node_port(made)
        taken = [
            name
            for (kind, name), one in self.objects.items()
            if port and kind == "Service" and _node_port(one) == port and name != made["metadata"]["name"]
        ]
        assert not taken, f"{port} is the port of {taken}"

    def _delete_service(self, name: tuple[str, str], uid: str) -> None:
        there = self.objects.get(name)
        if there is None or there["metadata"]["uid"] != uid:
            return
        self.goodbyes.append((name[1], self.pods.count if SET in self.objects else 0))
        if there["spec"].get("type") == "LoadBalancer":
            there["metadata"]["deletionTimestamp"] = NOW
        else:
            del self.objects[name]

    def lose_balancers(self) -> None:
        """Removes services that are being deleted, as the controller of the load balancers does."""
        for name in [name for name, one in self.objects.items() if "deletionTimestamp" in one["metadata"]]:
            del self.objects[name]

    def _claim(self, number: int) -> None:
        """Creates the claim of a pod if there is none: claims stay when pods are removed."""
        if all(one.broker_id != number for one in self.claims):
            uid = f"uid-{number}" if self.claims_made <= number else f"uid-{self.claims_made}"
            self.claims_made += 1
            self.claims.append(replace(claim(number), uid=uid))

    @property
    def pods(self) -> Pods:
        return read_pods(self.objects[SET])

    def settle(self, brokers: Brokers | None = None, crash_at: int | None = None) -> None:
        done = 0
        for _ in range(200):
            view = None if brokers is None or SET not in self.objects else self.view(brokers)
            decision = self.plan(view)
            if not every(decision):
                return
            for action in every(decision):
                if done == crash_at:
                    crash_at = None
                    break
                self.do(action, brokers)
                done += 1
            self.lose_balancers()
        raise AssertionError(f"it goes on for ever: {every(decision)}")

    def crawl(self, brokers: Brokers, actions_max: int = 60) -> None:
        """Kills the operator after each action that changes something. Repeated actions without effect do not
        count."""
        for _ in range(actions_max):
            decision = self.plan(self.view(brokers) if SET in self.objects else None)
            if not any(self.do(action, brokers) for action in every(decision)) and not brokers.arrive():
                return
            self.lose_balancers()
        assert actions_max < 60, f"it goes on for ever: {every(decision)}"

    def view(self, brokers: Brokers) -> BrokersView:
        """Brokers start with their pods, and a cordoned broker does not vote."""
        for number in range(self.pods.count):
            if number not in brokers.states and number not in self.pods.draining:
                uid = next(one.uid for one in self.claims if one.broker_id == number)
                assert uid not in self.over, "it comes with the volume of the one before it"
                brokers.states[number] = "active"
        view = brokers.view()
        able = tuple(number for number, state in brokers.states.items() if state == "active")
        return replace(view, cluster=replace(view.cluster, voters=able[:3]))


def every(decision: ClusterDecision) -> tuple[do.ClusterAction, ...]:
    """Returns all actions in the order of execution."""
    return (*decision.actions, *decision.independent)


def _node_port(service: Mapping[str, Any]) -> int | None:
    ports = service["spec"].get("ports") or [{}]
    found: int | None = ports[0].get("nodePort")
    return found


def claim(number: int) -> Claim:
    return Claim(f"data-main-{number}", f"uid-{number}", number, "Bound", False)


def _name(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def kinds(decision: ClusterDecision) -> list[str]:
    return [
        one.manifest["kind"] if isinstance(one, do.ApplyObject | do.CreateObject) else type(one).__name__
        for one in decision.actions
    ]


def deleted(decision: ClusterDecision) -> list[str]:
    return [one.object.name for one in decision.actions if isinstance(one, do.DeleteObject)]
