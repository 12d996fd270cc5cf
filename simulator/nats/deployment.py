"""All NATS servers and publishers of a run, and the checks of them at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulator.cluster import Cluster
from simulator.nats.client import SLOW
from simulator.nats.content import judge_content, judge_ids
from simulator.nats.publishers import SimPublisher, Target
from simulator.nats.server import ServerMachine, addresses_of
from tidelog.history import History
from tidelog_broker.nats.recording import fnv1a_32

FIRST_PUBLISHER: Final = 2_000
"""The names of publishers begin here, beyond the names of all other clients."""

WORDS_MAX: Final = 50
"""How many words are tried to find subjects of a partition."""

SUBJECTS: Final = 3
"""How many subjects one publisher has, at most."""


class NatsDeployment:
    """The servers and publishers. Both lists are empty in a run without NATS."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self.servers: list[ServerMachine] = []
        self.publishers: list[SimPublisher] = []
        plan = cluster.plan.nats
        numbers = range(1, plan.servers + 1) if plan is not None else range(0)
        for number in numbers:
            assert plan is not None
            others = tuple(other for other in numbers if other != number)
            self.servers.append(
                ServerMachine(cluster.world, cluster.network, number, others, plan.pending_bytes_max)
            )

    def start(self) -> None:
        """Starts every server that is down."""
        for server in self.servers:
            server.start_if_down()

    def publish(self) -> None:
        """Starts the publishers."""
        cluster, plan = self._cluster, self._cluster.plan.nats
        if plan is None:
            return
        for place, key in enumerate(cluster.keys):
            stream = cluster.checks.image.streams.find(key[0])
            assert stream is not None
            pattern = stream.config.subject
            subjects = subjects_of(pattern, stream.config.partitions, key[1]) if pattern else ()
            if subjects:
                target = Target(stream.name, key, place, subjects)
                self.publishers += [
                    SimPublisher(
                        cluster.world, cluster.network, self._history, cluster.checks,
                        FIRST_PUBLISHER + len(self.publishers) + number,
                        plan, addresses_of(plan), target, kind,
                    )
                    for number, kind in enumerate(plan.publishers)
                ]  # fmt: skip

    @property
    def acknowledged(self) -> int:
        return sum(publisher.acknowledged for publisher in self.publishers)

    def end(self) -> None:
        """Kills all processes, so that none is left to the garbage collector."""
        for publisher in self.publishers:
            publisher.process.kill()
        for server in self.servers:
            if server.process is not None:
                server.process.kill()

    # --- the end of a run

    def settle(self) -> None:
        """The faults have ended: starts every server, and asks every publisher to stop after one more
        answer."""
        self.start()
        for publisher in self.publishers:
            publisher.stopped = True

    def reasons(self) -> Iterator[str]:
        """Yields why NATS has not recovered yet. Raises the error that ended a publisher or a server."""
        for publisher in self.publishers:
            _raise_failure(publisher.failure)
            for context in publisher.process.loop.errors:
                _raise_failure(context.get("exception"))
            if not publisher.idle:
                yield f"{publisher!r} still waits for an answer"
        for server in self.servers:
            if server.process is not None:
                for context in server.process.loop.errors:
                    _raise_failure(context.get("exception"))

    def judge(self) -> None:
        """Raises Violated if the logs differ from the messages that were sent."""
        slow = sum(server.ended.get(SLOW, 0) for server in self.servers)
        if slow:
            self._cluster.checks.marks["NATS slow consumer"] += slow
        if self.publishers:
            judge_content(self._cluster, self.publishers)
            judge_ids(self._cluster, self._history, self.publishers)


def subjects_of(pattern: str, partitions: int, partition: int) -> tuple[bytes, ...]:
    """Subjects that match the pattern and lead to this partition; none, if the pattern is a subject of
    another partition."""
    found: dict[bytes, None] = {}
    for number in range(WORDS_MAX):
        # One word of four is not ASCII.
        word = f"w{number}" if number % 4 else f"é{number}"
        tokens = [word if token == "*" else token for token in pattern.split(".")]
        if tokens[-1] == ">":
            tokens[-1:] = [word, "deep"] if number % 2 else [word]
        subject = ".".join(tokens).encode()
        if partitions == 1 or fnv1a_32(subject) % partitions == partition:
            found[subject] = None
        if len(found) == SUBJECTS:
            break
    return tuple(found)


def _raise_failure(failure: BaseException | None) -> None:
    if failure is not None:
        raise failure
