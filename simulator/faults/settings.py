"""Changes of stream settings while records are written: durability (R17), retention, sizes."""

from __future__ import annotations

from typing import Final

from simulator.cluster import Cluster
from simulator.world import MS
from tidelog.model import Durability, Retention, StreamSettings
from tidelog_broker.core.metadata.decisions import streams as decide
from tidelog_broker.core.metadata.image import StreamImage

AGES_MS: Final = (4_000, 8_000, 15_000)
"""Longer than the skew of right clocks, and short enough that records grow old in a run."""

POWER_CHANCE: Final = 0.4
"""How often power is lost right after a change of durability, in runs with power losses."""
POWER_US_MAX: Final = 30 * MS

NO_BOUND_CHANCE: Final = 0.2


class SettingChanges:
    """Alters streams. Draws from its own random stream, so that other faults do not change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = cluster.world.rng_of("settings")

    def change_durability(self) -> None:
        stream = self._stream()
        if stream is not None:
            fsync = stream.config.durability is Durability.PAGE_CACHE
            durability = Durability.FSYNC if fsync else Durability.PAGE_CACHE
            self._alter(stream, StreamSettings(durability=durability))
            if self._cluster.plan.power_losses and self._rng.random() < POWER_CHANCE:
                self._cluster.world.after(self._rng.randint(0, POWER_US_MAX), self._lose_power)

    def _lose_power(self) -> None:
        """One broker or all lose power while they flush records that were committed without a flush."""
        cluster = self._cluster
        up = cluster.up() if cluster.faults_active else []
        for node in up if self._rng.random() < 0.5 else up[:1]:
            cluster.end(node, power=True)

    def change_retention(self) -> None:
        stream = self._stream()
        if stream is not None:
            self._alter(stream, StreamSettings(retention=self._retention()))

    def change_sizes(self) -> None:
        stream = self._stream()
        if stream is not None:
            segment = self._rng.choice((4 << 10, 8 << 10, 16 << 10, 64 << 10))
            settings = StreamSettings(
                segment_bytes=segment,
                segment_age_ms=self._rng.choice((1_000, 3_000, 60_000)),
                batch_bytes_max=self._rng.choice((3 << 10, 4 << 10, segment)),
            )
            self._alter(stream, settings)

    def _retention(self) -> Retention:
        if self._rng.random() < NO_BOUND_CHANCE:
            return Retention()
        kind = self._rng.choice(("age", "age", "bytes", "messages", "all"))
        return Retention(
            age_ms=self._rng.choice(AGES_MS) if kind in ("age", "all") else None,
            bytes=self._rng.choice((8 << 10, 30 << 10)) if kind in ("bytes", "all") else None,
            messages=self._rng.choice((10, 50, 200)) if kind in ("messages", "all") else None,
        )

    def _stream(self) -> StreamImage | None:
        key = self._rng.choice(self._cluster.keys)
        return self._cluster.checks.image.streams.find(key[0])

    def _alter(self, stream: StreamImage, settings: StreamSettings) -> None:
        self._cluster.world.tell(f"{stream.name}: set to {settings.given()}")
        self._cluster.decide(lambda image: decide.alter_stream(image, stream.name, settings))
