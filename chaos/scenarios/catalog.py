"""All scenarios by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from chaos.harness import Harness
from chaos.load import STEADY, WRITERS
from chaos.scenarios import cut, growth, nats, partition, roll, rotation
from chaos.setup import Setup

_MEASURED: Final = (*WRITERS, STEADY)
ANSWER_SECONDS: Final = 0.3
"""How long a publisher waits for an answer. Core NATS loses a message without a subscriber, so a longer wait
would count as part of the gap."""

_THREE: Final = Setup(writers=_MEASURED, answer_seconds=ANSWER_SECONDS)


@dataclass(frozen=True)
class Scenario:
    """One event, repeated under load."""

    about: str
    """For `--help`."""
    act: Callable[[Harness, int], Awaitable[None]]
    """Performs the event on a cluster under load, so many times."""
    rounds: int
    """How many times by default."""
    setup: Setup = _THREE


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "growth": Scenario(
        "the cluster grows from 1 broker to 3 and to 5, and then the first 2 leave",
        growth.act,
        1,
        replace(_THREE, brokers=1, brokers_max=growth.BROKERS_MAX, copies=1),
    ),
    "partition": Scenario("a leader is cut off from both followers", partition.act, 2),
    "cut": Scenario("a leader and one follower are cut off from each other", cut.act, 1),
    "nats": Scenario(
        "the leader of a recorded subject is killed",
        nats.act,
        10,
        replace(_THREE, publishers=nats.PUBLISHERS),
    ),
    "rotation": Scenario(
        "certificates, tokens and the authority are replaced", rotation.act, 3, replace(_THREE, tls=True)
    ),
    "roll": Scenario("all brokers are restarted, one after the other", roll.act, 3),
}
