"""What a broker with NATS servers runs: one connection, and the recorder that uses it."""

from __future__ import annotations

import random
from typing import Final

import structlog

from tidelog_broker.hosting.broker import Broker
from tidelog_broker.nats.connection import NatsConnection
from tidelog_broker.nats.recorder import Recorder
from tidelog_broker.nats.settings import NatsSettings

log = structlog.get_logger(__name__)

FLUSH_SECONDS_MAX: Final = 0.5
"""How long the last answers to NATS publishers may take."""


class BrokerRecording:
    """The connection and the recorder of one broker. Belongs to one event loop."""

    def __init__(self, broker: Broker, settings: NatsSettings, rng: random.Random) -> None:
        self._broker = broker
        self._connection = NatsConnection(
            settings,
            rng,
            on_connected=lambda server: log.info("connected to NATS", server=server),
            on_disconnected=self._disconnected,
        )
        self._recorder = Recorder(broker, self._connection)
        self._stopping = False

    def __repr__(self) -> str:
        return f"<BrokerRecording {self._connection!r} {self._recorder!r}>"

    def start(self) -> None:
        """Records every partition that this broker leads, now and from now on."""
        self._broker.listen(self._recorder)
        self._connection.start()

    def session_changed(self, good: bool) -> None:
        """As `Recorder.session`."""
        self._recorder.session(good)

    async def drain(self) -> None:
        """As `Recorder.drain`; the connection may be lost from now on."""
        self._stopping = True
        await self._recorder.drain()

    async def close(self) -> None:
        """Sends what is left to answer, and ends the connection."""
        self._stopping = True
        await self._recorder.refused()
        try:
            await self._connection.flush(FLUSH_SECONDS_MAX)
        except Exception as error:
            log.warning("the last answers to NATS publishers may be lost", error=str(error))
        await self._connection.close()

    def _disconnected(self, reason: str) -> None:
        say = log.info if self._stopping else log.warning
        say("disconnected from NATS", reason=reason)
