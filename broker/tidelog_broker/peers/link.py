"""Keeps a connection to one broker open, and reports the evidence when it cannot.

Neighbours: `dialing` opens the connection, `watch` judges it, and the receiver knows what it carries.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from tidelog_broker.peers.connection import PeerConnection, Receiver
from tidelog_broker.peers.dialing import dial
from tidelog_broker.peers.errors import DirectoryRestored, PeerError, PeerRefused, WrongPeer
from tidelog_broker.peers.hello import ConnectionKind, Identity
from tidelog_broker.peers.watch import REDIAL_SECONDS_MAX, Evidence, Watch
from tidelog_broker.tls.credentials import Credentials

log = structlog.get_logger(__name__)

DIAL_SECONDS_MAX: Final = 1.0
LOOK_SECONDS: Final = 0.1
PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0
"""Between two dials that fail; doubled each time."""


class Owner(Receiver, Protocol):
    """The user of the link."""

    def address(self) -> tuple[str, int] | None:
        """The address of the broker; None: it is not known yet."""

    def evidence(self, evidence: Evidence | None) -> None:
        """The evidence against the broker changed."""

    def directory_restored(self, reason: str) -> None:
        """The broker reports that the data directory here was restored from a copy (R19)."""


class PeerLink:
    """A connection that is dialed again whenever it breaks. Belongs to one event loop."""

    def __init__(
        self,
        broker_id: int,
        kind: ConnectionKind,
        me: Callable[[], Identity],
        owner: Owner,
        rng: random.Random,
        *,
        tls: Credentials | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker_id = broker_id
        self._kind = kind
        self._me = me
        self._owner = owner
        self._rng = rng
        self._tls = tls
        self._told_refusal = ""
        """Why the broker is the wrong one, as it was logged last."""
        self._told_plain = False
        """It was logged that the last connection does not use TLS."""
        self._watch = Watch(self._loop.time())
        self._told: Evidence | None = None
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.connection: PeerConnection | None = None
        """None: it is not open."""

    def __repr__(self) -> str:
        state = self._told or ("open" if self.connection else "dialing")
        return f"<PeerLink {self._kind} to broker {self._broker_id} {state}>"

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"{self._kind} link to broker {self._broker_id}")

    async def stop(self, reason: str) -> None:
        connection = self.connection
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if connection is not None:
            await connection.end(reason)

    def hurry(self) -> None:
        """Dials now: the address is known, or the broker is probably back."""
        self._hurry.set()

    async def _run(self) -> None:
        pause = 0.0
        while True:
            if pause:
                self._hurry.clear()
                await _either(self._hurry, pause * self._rng.uniform(0.75, 1.0))
            try:
                connection = await self._dial(first=not pause)
            except Exception as error:
                # A PeerError is expected. After any other error, giving up would end replication.
                if not isinstance(error, PeerError):
                    log.exception(
                        "a link to another broker failed unexpectedly; it dials again", broker=self._broker_id
                    )
                if isinstance(error, DirectoryRestored):
                    self._owner.directory_restored(str(error))
                if type(error) is WrongPeer and str(error) != self._told_refusal:
                    self._told_refusal = str(error)
                    log.warning(
                        "no connection to another broker; dialing again",
                        broker=self._broker_id,
                        reason=str(error),
                    )
                connection = None
            if connection is None:
                pause = min(max(2 * pause, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
                continue
            self._told_refusal = ""
            if self._tls is not None and self._told_plain is connection.encrypted:
                self._told_plain = not connection.encrypted
                log.info(
                    "the connection to another broker uses TLS now"
                    if connection.encrypted
                    else "the connection to another broker does not use TLS: its peer_tls is off",
                    broker=self._broker_id,
                    kind=str(self._kind),
                )
            await self._use(connection)
            pause = 0.0

    async def _dial(self, *, first: bool) -> PeerConnection | None:
        address = self._owner.address()
        if address is None:
            return None
        # A redial that takes longer is evidence already; it continues all the same.
        late = self._loop.call_later(REDIAL_SECONDS_MAX, self._redial_is_late) if first else None
        try:
            return await dial(
                *address,
                self._me,
                self._kind,
                target=self._broker_id,
                timeout_s=DIAL_SECONDS_MAX,
                tls=self._tls,
            )
        except PeerRefused:
            self._watch.refused()
            raise
        except PeerError:
            self._watch.unreachable()
            raise
        finally:
            if late is not None:
                late.cancel()
            self._tell()

    def _redial_is_late(self) -> None:
        self._watch.unreachable()
        self._tell()

    async def _use(self, connection: PeerConnection) -> None:
        """Returns when it has ended."""
        self.connection = connection
        self._watch.connected(self._loop.time())
        self._tell()
        ended = asyncio.Event()
        connection.serve(_Ending(self._owner, ended))
        try:
            while not ended.is_set():
                await _either(ended, LOOK_SECONDS)
                if not ended.is_set():
                    self._watch.look(connection.heard, self._loop.time())
                    self._tell()
        finally:
            self.connection = None
            self._watch.ended(self._loop.time(), silent=connection.silent)
            self._tell()

    def _tell(self) -> None:
        if self._watch.evidence is not self._told:
            self._told = self._watch.evidence
            self._owner.evidence(self._told)


class _Ending:
    """A receiver that also sets an event when the connection ends."""

    def __init__(self, receiver: Receiver, ended: asyncio.Event) -> None:
        self._receiver = receiver
        self._ended = ended

    def opened(self, connection: PeerConnection) -> None:
        self._receiver.opened(connection)

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None:
        self._receiver.received(connection, header, payload)

    def writable(self, connection: PeerConnection) -> None:
        self._receiver.writable(connection)

    def closed(self, connection: PeerConnection, reason: str) -> None:
        self._ended.set()
        self._receiver.closed(connection, reason)


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Waits until the event, at most so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
