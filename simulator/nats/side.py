"""The NATS side of a run: its servers, its publishers, and what is asked of them when it is calm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from simulator.nats.client import SLOW
from simulator.nats.content import judge_content, judge_ids
from simulator.nats.publishers import SimPublisher, Target
from simulator.nats.server import CLIENT_PORT, ServerMachine, host_of
from simulator.nats.weather import NatsWeather
from tidelog_broker.nats.recording import fnv1a_32

if TYPE_CHECKING:
    from simulator.run import Simulation

FIRST_PUBLISHER: Final = 2_000
"""Their names lie beyond those of all other clients."""

WORDS_MAX: Final = 50
"""So many words are tried to find subjects of a partition."""

SUBJECTS: Final = 3
"""Of one publisher, at most."""


class NatsSide:
    """See the module. Empty in a run without NATS."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self.servers: list[ServerMachine] = []
        self.publishers: list[SimPublisher] = []
        self.weather = NatsWeather(run, self)
        plan = run.plan.nats
        numbers = range(1, plan.servers + 1) if plan is not None else range(0)
        for number in numbers:
            assert plan is not None
            others = tuple(other for other in numbers if other != number)
            self.servers.append(ServerMachine(run.world, run.network, number, others, plan.pending_bytes_max))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"nats://{host_of(server.number)}:{CLIENT_PORT}" for server in self.servers)

    def start_all(self) -> None:
        for server in self.servers:
            self.start(server)

    def start(self, server: ServerMachine) -> None:
        if server.process is None:
            server.start()

    def publish(self) -> None:
        """Publishers begin."""
        run, plan = self._run, self._run.plan.nats
        if plan is None:
            return
        for place, key in enumerate(run.keys):
            stream = run.checks.image.streams.find(key[0])
            assert stream is not None
            pattern = stream.config.subject
            subjects = subjects_of(pattern, stream.config.partitions, key[1]) if pattern else ()
            if subjects:
                target = Target(stream.name, key, place, subjects)
                self.publishers += [
                    SimPublisher(
                        run.world, run.network, run.history, run.checks,
                        FIRST_PUBLISHER + len(self.publishers) + number, plan, self.addresses, target, kind,
                    )
                    for number, kind in enumerate(plan.publishers)
                ]  # fmt: skip

    @property
    def acknowledged(self) -> int:
        return sum(publisher.acknowledged for publisher in self.publishers)

    def end(self) -> None:
        """Nothing of it is left to the collector."""
        for publisher in self.publishers:
            publisher.process.kill()
        for server in self.servers:
            if server.process is not None:
                server.process.kill()

    # --- calm

    def settle(self) -> None:
        """No more faults: every server is there, and every publisher wants one more answer."""
        self.start_all()
        for publisher in self.publishers:
            publisher.stopped = True

    def reasons(self) -> Iterator[str]:
        """Why it is not calm yet. Raises what ended a publisher or a server that should not have ended."""
        for publisher in self.publishers:
            _raise_failure(publisher.failure)
            for context in publisher.process.loop.errors:
                _raise_failure(context.get("exception"))
            if not publisher.idle:
                yield f"{publisher!r} waits for an answer"
        for server in self.servers:
            if server.process is not None:
                for context in server.process.loop.errors:
                    _raise_failure(context.get("exception"))

    def judge(self) -> None:
        """What stands in the logs is what was sent."""
        slow = sum(server.ended.get(SLOW, 0) for server in self.servers)
        if slow:
            self._run.checks.marks["NATS slow consumer"] += slow
        if self.publishers:
            judge_content(self._run, self.publishers)
            judge_ids(self._run, self.publishers)


def subjects_of(pattern: str, partitions: int, partition: int) -> tuple[bytes, ...]:
    """Subjects that the pattern records into this partition; none, if it is one subject of another."""
    found: dict[bytes, None] = {}
    for number in range(WORDS_MAX):
        # One in a few is not ASCII.
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
