"""A NATS publisher that waits for the acknowledgement of each message, as every JetStream client does.

It repeats a message with the same `Nats-Msg-Id` until the message is acknowledged, within the stream's dedupe
window.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import nats.errors
import nats.js.errors

import nats
from chaos.recording import Recording
from tidelog.history import Outcome, Write, stamp

ANSWER_SECONDS_MAX: Final = 1.0
GIVE_UP_SECONDS: Final = 60.0
"""Half of the dedupe window. A message that is repeated after it may be stored again, and should be."""

AGAIN_SECONDS: Final = 0.05
PING_SECONDS: Final = 1
PINGS_UNANSWERED_MAX: Final = 3
"""A server whose machine is gone does not answer pings. By default the library notices after four minutes."""

MESSAGES_PER_SECOND: Final = 25.0
PUBLISHER: Final = "NATS publisher"


class Publisher:
    """Publishes one message after the other to a subject that a stream of one partition records."""

    def __init__(
        self,
        url: str,
        stream: str,
        subject: str,
        recording: Recording,
        rng: random.Random,
        *,
        answer_seconds: float = ANSWER_SECONDS_MAX,
    ) -> None:
        self._url = url
        self._stream = stream
        self._subject = subject
        self._recording = recording
        self._rng = rng
        self._answer_seconds = answer_seconds
        self._number = recording.new_producer(stream, PUBLISHER)
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        client = await nats.connect(
            self._url,
            name="chaos",
            max_reconnect_attempts=-1,
            ping_interval=PING_SECONDS,
            max_outstanding_pings=PINGS_UNANSWERED_MAX,
        )
        try:
            jetstream = client.jetstream()
            number = 0
            while not self.stopping.is_set():
                write = await self._publish(jetstream, number)
                self._recording.wrote(self._stream, write, asyncio.get_running_loop().time())
                number += 1
                await asyncio.sleep(self._rng.expovariate(MESSAGES_PER_SECOND))
        finally:
            await client.close()

    async def _publish(self, jetstream: nats.js.JetStreamContext, number: int) -> Write:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + GIVE_UP_SECONDS
        headers = {"Nats-Msg-Id": f"{self._number}-{number}"}
        payload = stamp(self._number, number, 60)
        while loop.time() < give_up_at:
            try:
                answer = await jetstream.publish(
                    self._subject, payload, timeout=self._answer_seconds, headers=headers
                )
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
                # No broker answered, or a broker that cannot record it now. The same message is sent again.
                self._recording.told(PUBLISHER, error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            return Write(self._number, 0, number, 1, Outcome.ACKNOWLEDGED, answer.seq - 1)
        return Write(self._number, 0, number, 1, Outcome.UNKNOWN)
