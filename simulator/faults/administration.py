"""Administration during a run: deletions, minima, reassignments and leadership moves, at random times as
faults."""

from __future__ import annotations

import random
import uuid
from typing import Final

from simulator.clients.population import Population
from simulator.cluster import Cluster
from simulator.node import Key
from simulator.world import MS
from tidelog.model import StreamSettings
from tidelog_broker.core.metadata.commands import ChangePartitions, Command, PartitionChange
from tidelog_broker.core.metadata.decisions import streams as decide
from tidelog_broker.core.metadata.decisions.reassignment import cancel, reassign
from tidelog_broker.core.metadata.image import ClusterImage

SHORT_LIVED: Final = "short-lived"

OTHER_FACTOR_CHANCE: Final = 0.3
"""How often a reassignment changes the number of replicas."""

OTHER_ORDER_CHANCE: Final = 0.15
"""How often a reassignment keeps the replicas, and changes the preferred leader."""

RETURN_US_MAX: Final = 200 * MS
"""A leadership that has not moved by then is not moved back."""
LOOK_US: Final = MS // 2


class Administration:
    """Commands to the controller and to leaders."""

    def __init__(self, cluster: Cluster, clients: Population) -> None:
        self._cluster = cluster
        self._clients = clients
        self._copies = cluster.world.rng_of("copies")
        self._order = cluster.world.rng_of("order")
        self._returns = cluster.world.rng_of("returns")

    def move_start(self) -> None:
        cluster = self._cluster
        key = cluster.rng.choice(cluster.keys)
        leader = cluster.leader_of(key)
        if leader is not None:
            replica = leader.replicas[key]
            start, reached = replica.log.start_offset, replica.high_watermark
            if start < reached:
                # Any offset, also inside a batch (R11).
                offset = cluster.rng.randint(start + 1, reached)
                cluster.world.tell(f"{replica.name}: records below {offset} are deleted")
                cluster.checks.start_asked(key, offset)
                broker, partition = leader.broker, replica.partition
                assert broker is not None

                async def delete() -> None:
                    cluster.checks.deleted(leader, key, await broker.delete_records(partition, offset))

                cluster.ask(leader, delete)

    def change_minimum(self) -> None:
        key = self._cluster.rng.choice(self._cluster.keys)
        stream = self._cluster.checks.image.streams.find(key[0])
        if stream is not None:
            minimum = self._cluster.rng.randint(1, stream.config.replication_factor)
            self._cluster.world.tell(f"{stream.name}: at least {minimum} in sync from now on")
            self._cluster.decide(
                lambda image: decide.alter_stream(
                    image, stream.name, StreamSettings(min_insync_replicas=minimum)
                )
            )

    def reassign(self) -> None:
        """Reassigns a replica to another broker, or cancels a reassignment (KIP-455)."""
        cluster = self._cluster
        key = cluster.rng.choice(cluster.keys)
        partition = cluster.checks.image.partition(*key)
        if partition is None:
            return
        others = [broker for broker in sorted(cluster.nodes) if broker not in partition.target]
        if not others:
            return
        if partition.reassigning and cluster.rng.random() < 0.3:
            cluster.world.tell(f"the reassignment of partition {key[1]} is cancelled")
            cluster.decide(lambda image: cancel(image, key[0], [key[1]]))
            return
        target = list(partition.target)
        target[cluster.rng.randrange(len(target))] = cluster.rng.choice(others)
        if self._copies.random() < OTHER_FACTOR_CHANCE:
            target = self._other_factor(target)
        if self._order.random() < OTHER_ORDER_CHANCE:
            target = self._order.sample(partition.target, len(partition.target))
        cluster.world.tell(f"the replicas of partition {key[1]} shall be {target}")
        cluster.decide(lambda image: reassign(image, key[0], {key[1]: target}))

    def _other_factor(self, target: list[int]) -> list[int]:
        """The target with one replica more or fewer."""
        others = [broker for broker in sorted(self._cluster.nodes) if broker not in target]
        if others and (len(target) == 1 or self._copies.random() < 0.5):
            return [*target, self._copies.choice(others)]
        return target[1:] or target

    def move_leader(self) -> None:
        """Moves leadership to another member of the ISR, although the leader is healthy."""
        key = self._cluster.rng.choice(self._cluster.keys)
        heir = self._heir(key, self._cluster.rng)
        if heir is not None:
            self._lead(key, heir)

    def return_leader(self) -> None:
        """Moves leadership to another member of the ISR, and back at once."""
        key = self._returns.choice(self._cluster.keys)
        partition = self._cluster.checks.image.partition(*key)
        heir = self._heir(key, self._returns)
        if partition is None or partition.leader is None or heir is None:
            return
        leader = partition.leader
        until = self._cluster.world.now + RETURN_US_MAX

        def back() -> None:
            now = self._cluster.checks.image.partition(*key)
            if now is not None and now.leader == heir:
                self._lead(key, leader)
            elif self._cluster.world.now < until:
                self._cluster.world.after(LOOK_US, back)

        self._lead(key, heir)
        back()

    def _heir(self, key: Key, rng: random.Random) -> int | None:
        """A member of the ISR that does not lead."""
        partition = self._cluster.checks.image.partition(*key)
        if partition is None or partition.leader is None or len(partition.isr) < 2:
            return None
        return rng.choice([member for member in partition.isr if member != partition.leader])

    def _lead(self, key: Key, heir: int) -> None:
        def moved(image: ClusterImage) -> Command | None:
            now = image.partition(*key)
            if now is None or now.leader is None or now.leader == heir or heir not in now.isr:
                return None
            return ChangePartitions((PartitionChange(*key, leader=heir),))

        self._cluster.decide(moved)

    def create_or_delete(self) -> None:
        """Creates a stream, writes a record to it, or deletes it (M5)."""
        cluster = self._cluster
        known = cluster.checks.image.stream_named(SHORT_LIVED)
        if known is None:
            stream_id = uuid.UUID(int=cluster.rng.getrandbits(128)).bytes
            settings = StreamSettings(
                partitions=1, replication_factor=min(3, len(cluster.nodes)), min_insync_replicas=1
            )
            cluster.decide(
                lambda image: decide.create_stream(
                    image, SHORT_LIVED, settings, stream_id=stream_id, created_us=0
                )
            )
        elif cluster.rng.random() < 0.5:
            cluster.decide(lambda image: decide.delete_stream(image, SHORT_LIVED))
        else:
            self._clients.write_to(SHORT_LIVED)
