"""Measures the gap in acknowledgements when a server of a cluster fails or stops, for Tidelog and its
peers.

A producer at a fixed rate (`bench.clusters.steady_load`) prints when each record was acknowledged. Then a
signal goes to one of three servers. The gap is the longest time between two successive acknowledgements,
from the last one before the event on, as a client sees it. Each failover has a new stream and a new
producer; afterwards the server is started again, and the cluster is whole before the next failover.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from statistics import median
from time import monotonic, time_ns
from typing import Protocol

from bench.clusters.steady_load import RATE, Load, NotInTime, widest_gap_s
from bench.harness.model import Contender, Sample
from bench.harness.processes import Server
from bench.measuring.machine import ForeignLoad, IdleCpu, settle

IDLE_PERCENT_MIN = 20.0
"""With less idle CPU a gap says more about the machine than about the cluster."""

WATCH_SECONDS = 3.0
"""The least time to watch after the event: a second gap may follow the first."""

FLOW_SECONDS = 1.0
"""How long acknowledgements must flow again before a failover is over."""

RECOVER_SECONDS_MAX = 60.0
STEADY_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A signal, and the server that gets it."""

    signal: Signals
    role: str
    """leader, follower or controller."""
    word: str


FAULTS = {
    "kill": Fault(SIGKILL, "leader", "kill -9 of the leader"),
    "stop": Fault(SIGTERM, "leader", "SIGTERM to the leader: a clean stop"),
    "hang": Fault(SIGSTOP, "leader", "SIGSTOP to the leader"),
    "follower": Fault(SIGKILL, "follower", "kill -9 of a follower"),
    "controller": Fault(SIGKILL, "controller", "kill -9 of the controller, which is also the leader"),
}


class Target(Protocol):
    """A cluster of three servers."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def revive(self, member: Server) -> None:
        """Starts a server that has ended again; returns when the cluster is whole."""

    def wait_whole(self) -> None: ...

    def delete(self, stream: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Scene:
    """A stream to write to, and the server that gets the signal."""

    stream: str
    victim: Server
    command: Sequence[str]
    """The command of the load."""


@dataclass(frozen=True, slots=True)
class Failover:
    """The figures of one failover."""

    gap_s: float
    errors: int
    idle_percent: float
    foreign_cpus: float
    given_up: bool = False
    """It was not over within `RECOVER_SECONDS_MAX`: the real gap is longer than `gap_s`."""


def once(scene: Scene, fault: Fault, warm_seconds: float) -> Failover:
    """One failover. A killed victim stays down; the caller starts it again."""
    with Load(scene.command) as load:
        load.wait(lambda: load.flows(warm_seconds), STEADY_SECONDS_MAX + warm_seconds, "a steady load")
        idle, foreign = IdleCpu(), ForeignLoad()
        event_ns, event = time_ns(), monotonic()
        scene.victim.signal(fault.signal)

        def over() -> bool:
            gone = fault.signal is SIGSTOP or not scene.victim.running
            return gone and monotonic() - event >= WATCH_SECONDS and load.flows(FLOW_SECONDS)

        given_up = False
        try:
            load.wait(over, RECOVER_SECONDS_MAX, "the failover")
        except NotInTime:
            given_up = True
        finally:
            acknowledged, end_ns = load.acknowledged(), time_ns()
            if fault.signal is SIGSTOP:
                scene.victim.signal(SIGCONT)
        # A load that was given up has had no acknowledgement until now.
        gap = widest_gap_s([*acknowledged, end_ns] if given_up else acknowledged, event_ns)
        return Failover(gap, len(load.errors()), idle.percent(), foreign.end(), given_up)


def contender(
    name: str,
    target: Callable[[], Target],
    scene: Callable[[Target, Fault], Scene],
    *,
    fault: Fault,
    times: int,
    warm_seconds: float,
    settings: dict[str, object],
) -> Contender:
    """Starts a cluster of its own and measures `times` failovers of it."""

    def measure(_seconds: float) -> Sample:
        cluster, found = target(), []
        try:
            cluster.start()
            for number in range(times):
                settle()
                found.append(_round(cluster, scene(cluster, fault), fault, warm_seconds))
                print(
                    f"bench: {name}: {number + 1}/{times}: {found[-1].gap_s:.3f} s, "
                    f"{found[-1].idle_percent:.0f} % idle",
                    file=sys.stderr,
                    flush=True,
                )
        finally:
            cluster.stop()
        return sample(found)

    return Contender(
        name, measure, {**settings, "event": fault.word, "times": times, "records_per_second": RATE}
    )


def _round(cluster: Target, scene: Scene, fault: Fault, warm_seconds: float) -> Failover:
    found = once(scene, fault, warm_seconds)
    if fault.signal is SIGSTOP:
        cluster.wait_whole()
    else:
        cluster.revive(scene.victim)
    cluster.delete(scene.stream)
    return found


def sample(found: Sequence[Failover]) -> Sample:
    """The median gap, with the longest, all gaps, errors and idle CPU as facts."""
    gaps = sorted(one.gap_s for one in found)
    idle = min(one.idle_percent for one in found)
    return Sample(
        median(gaps),
        {
            "max_s": gaps[-1],
            "gaps_s": [round(gap, 3) for gap in gaps],
            "given_up": sum(one.given_up for one in found),
            "client_errors": sum(one.errors for one in found),
            "idle_cpu_percent_min": round(idle, 1),
            "enough_idle_cpu": idle >= IDLE_PERCENT_MIN,
            "foreign_cpus_max": round(max(one.foreign_cpus for one in found), 3),
        },
    )
