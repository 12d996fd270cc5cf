"""What simulated producers and readers have in common: an address, a partition, somebody to ask next.

Neighbours: `producers`, `readers`. What they did is a history (`tidelog.history`).
"""

from __future__ import annotations

import random
from typing import Final

from simulator.broker import Broker
from simulator.old_network import Network
from simulator.replica import Key
from simulator.world import MS, World
from tidelog.history import History

TIMEOUT_US: Final = 800 * MS


class Client:
    """Somebody at an address of its own, who works on one partition."""

    def __init__(
        self,
        world: World,
        network: Network,
        brokers: dict[int, Broker],
        history: History,
        address: int,
        key: Key,
        partition: int,
        *,
        pause_us: int,
    ) -> None:
        self._world = world
        self._network = network
        self._brokers = brokers
        self._history = history
        self._address = address
        self.name = -address
        """In the history."""
        self._key = key
        self._partition = partition
        self._pause_us = pause_us
        self._rng: random.Random = world.rng_of(f"client {address}")
        self._leader = self._rng.choice(sorted(brokers))
        """Whom it asks next."""
