"""Simulated publishers: they send numbered records to subjects, and record the answers.

The connection is the product's (`tidelog_broker.nats.connection`), which has only what core NATS needs. The
publisher interprets answers here, as the documentation says:

- An answer without an error means that the record is committed, at the offset that the answer names.
- An answer with an error means that the record was not recorded, with two exceptions: `STORAGE_FAILED_CODE`,
  and another leader since the message was sent (N5).
- No answer leaves the outcome unknown. A publisher with message ids sends the message again.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Final, NamedTuple

from simulator.checks import Checks, require
from simulator.kernel.network import Network
from simulator.kernel.processes import Process
from simulator.nats.plan import Kind, NatsPlan
from simulator.node import Key
from simulator.world import SECOND, World
from tidelog.history import STAMP_BYTES, History, Outcome, Producer, Write, stamp
from tidelog_broker.nats.connection import NatsConnection
from tidelog_broker.nats.errors import NatsError
from tidelog_broker.nats.headers import status
from tidelog_broker.nats.parser import Message
from tidelog_broker.nats.settings import NatsSettings

WINDOW: Final = 4
"""How many records of one publisher may wait for an answer."""

TOLD_AT_ONCE_MAX: Final = 20
"""How many records a publisher without a reply subject sends at once, at most."""

ANSWER_S: Final = 1.0
"""How long a publisher waits for an answer before it sends again, or gives up."""

TOLD_PAUSES: Final = 4
"""A publisher without a reply subject pauses so many times as long."""

GIVE_UP_S: Final = 8.0
"""How long a publisher with message ids repeats a message; after that its outcome is unknown."""

AGAIN_S: Final = 0.1
"""How long a publisher waits after a refusal."""

STORAGE_FAILED_CODE: Final = 10077
"""JetStream's "storing the message failed": it is not known whether the record survives."""

INBOX: Final = b"_INBOX.p%d.%d"


class Target(NamedTuple):
    """The partition that records a publisher's messages."""

    stream: str
    key: Key
    place: int
    """The number of the partition in the history."""
    subjects: tuple[bytes, ...]
    """Subjects that lead to the partition."""


class Sent(NamedTuple):
    """A message as it must be in the log."""

    subject: bytes
    value: bytes
    message_id: bytes | None


class SimPublisher:
    """Sends to one partition, at the pace of the plan, until it is stopped; then until one more is
    committed."""

    def __init__(
        self,
        world: World,
        network: Network,
        history: History,
        checks: Checks,
        name: int,
        plan: NatsPlan,
        servers: tuple[str, ...],
        target: Target,
        kind: Kind,
    ) -> None:
        self.name = name
        self.kind = kind
        self.target = target
        self.rng: random.Random = world.rng_of(f"publisher {name}")
        self.sent: dict[int, Sent] = {}
        """By number."""
        self.stopped = False
        self.idle = False
        """It was stopped, and got one more answer that a record is committed."""
        self.acknowledged = 0
        self.failure: BaseException | None = None
        """The error that ended it, which must not happen; None: there was none."""
        self._world = world
        self._history = history
        self._checks = checks
        self._plan = plan
        self._servers = servers
        self._number = 0
        self._attempts = 0
        self._waiting: dict[bytes, asyncio.Future[Message]] = {}
        """By reply subject."""
        self._offsets: dict[int, int] = {}
        """By number: the offset in the answer."""
        self._sending: dict[asyncio.Task[None], None] = {}
        # Over a route, a message that one leader has recorded may reach the next leader later (N7). A message
        # with an id may be recorded again after its first record was deleted: `content` checks that.
        alone = plan.servers == 1 and kind is not Kind.NAMED
        history.producers[name] = Producer(f"publisher {name}", repeats=not alone, ordered=alone)
        self.machine = network.machine(f"publisher-{name}")
        self.process = Process(
            world, network, self.machine, f"publisher {name}", None, lambda: (1, 10), lambda: None
        )
        self.process.run(self._main(), self._ended)

    def __repr__(self) -> str:
        return f"<SimPublisher {self.name} {self.kind} sent={self._number} acknowledged={self.acknowledged}>"

    def _ended(self, how: BaseException | int) -> None:
        if isinstance(how, BaseException):
            self.failure = how

    # --- its process

    async def _main(self) -> int:
        settings = NatsSettings(servers=self._servers, name=f"publisher {self.name}")
        connection = self._connection = NatsConnection(settings, self.rng, on_disconnected=self._disconnected)
        connection.subscribe(INBOX.replace(b"%d.%d", b"%d.*") % self.name, self._heard)
        connection.start()
        loop = asyncio.get_running_loop()
        pauses = TOLD_PAUSES if self.kind is Kind.TELLING else 1
        while not self.stopped:
            if self.kind is Kind.TELLING:
                for _ in range(self.rng.choice((1, 1, 1, 1, 1, TOLD_AT_ONCE_MAX))):
                    self._tell()
            elif len(self._sending) < WINDOW:
                task = loop.create_task(self._ask(self._next()))
                self._sending[task] = None
                task.add_done_callback(self._done)
            await asyncio.sleep(self.rng.uniform(0.5, 2.0) * self._plan.pause_us / SECOND * pauses)
        if self._sending:
            await asyncio.wait(list(self._sending))
        while not self.idle:
            # With an id for every kind of publisher, so that the message can be repeated.
            self.idle = await self._named(self._next())
        await connection.close()
        return 0

    def _done(self, task: asyncio.Task[None]) -> None:
        self._sending.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()

    def _disconnected(self, reason: str) -> None:
        # Messages that the server still has from the old connection may be delivered after those of the next.
        producer = self._history.producers[self.name]
        self._history.producers[self.name] = producer._replace(ordered=False)

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        return number

    # --- sending

    def _tell(self) -> None:
        number = self._next()
        self._publish(number, None, None)
        self._note(number, Outcome.UNKNOWN)

    async def _ask(self, number: int) -> None:
        if self.kind is Kind.NAMED:
            await self._named(number)
            return
        answer = await self._attempt(number, None)
        self._note(number, answer.outcome, answer.offset)

    async def _named(self, number: int) -> bool:
        """Sends a message with an id until it is committed. False: it gave up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + GIVE_UP_S
        message_id = b"%d-%d" % (self.name, number)
        in_doubt = False
        while True:
            answer = await self._attempt(number, message_id)
            if answer.outcome is Outcome.ACKNOWLEDGED:
                if in_doubt:
                    self._checks.mark("N3 asked again")
                self._note(number, Outcome.ACKNOWLEDGED, answer.offset)
                return True
            in_doubt = in_doubt or answer.outcome is Outcome.UNKNOWN
            if loop.time() >= deadline:
                self._note(number, Outcome.UNKNOWN if in_doubt else Outcome.REFUSED)
                return False
            if answer.outcome is Outcome.REFUSED:
                await asyncio.sleep(AGAIN_S)

    async def _attempt(self, number: int, message_id: bytes | None) -> _Answer:
        self._attempts += 1
        reply = INBOX % (self.name, self._attempts)
        answered = self._waiting[reply] = asyncio.get_running_loop().create_future()
        self._checks.publisher_asks(reply, self.target.key)
        try:
            if not self._publish(number, reply, message_id):
                return _Answer(Outcome.REFUSED)
            async with asyncio.timeout(ANSWER_S):
                message = await answered
            return self._understood(number, reply, message)
        except TimeoutError:
            return _Answer(Outcome.UNKNOWN)
        finally:
            del self._waiting[reply]
            self._checks.publisher_waits_no_more(reply)

    def _publish(self, number: int, reply: bytes | None, message_id: bytes | None) -> bool:
        """False: the connection did not take the message."""
        sent = self.sent.get(number)
        if sent is None:
            subject = self.rng.choice(self.target.subjects)
            value = stamp(self.name, number, STAMP_BYTES + self.rng.choice((0, 8, 40, 400)))
            sent = self.sent[number] = Sent(subject, value, message_id)
        headers = [] if message_id is None else [(b"Nats-Msg-Id", message_id), (b"Tries", b"some")]
        try:
            self._connection.publish(sent.subject, sent.value, reply, headers)
        except NatsError:
            return False
        return True

    # --- answers

    def _heard(self, messages: list[Message]) -> None:
        for message in messages:
            waiting = self._waiting.get(message[0])
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def _understood(self, number: int, reply: bytes, message: Message) -> _Answer:
        block = message[2]
        if block is not None:
            nobody = status(block)
            assert nobody is not None, block
            assert nobody.code == 503, block
            self._checks.mark("N2 no responders")
            return _Answer(Outcome.REFUSED)
        body = json.loads(message[3])
        if "error" in body:
            code = body["error"]["err_code"]
            self._checks.mark(f"N2 refused with {code}")
            definite = code != STORAGE_FAILED_CODE and self._checks.is_refusal_definite(reply)
            return _Answer(Outcome.REFUSED if definite else Outcome.UNKNOWN)
        with self._checks.kept():
            self._judge(number, body)
        self._checks.mark("N3 duplicate" if body.get("duplicate") else "N2 acknowledged")
        self.acknowledged += 1
        return _Answer(Outcome.ACKNOWLEDGED, body["offset"])

    def _judge(self, number: int, body: dict[str, Any]) -> None:
        target, offset = self.target, body["offset"]
        told = f"publisher {self.name} got an answer for number {number}: {body}"
        require(body["stream"] == target.stream, "N2", f"{told}; expected stream {target.stream}")
        require(body["partition"] == target.key[1], "N6", f"{told}; expected partition {target.key[1]}")
        require(body["seq"] == offset + 1, "N2", f"{told}; expected seq {offset + 1}")
        self._checks.mark("N6 in its partition")
        known = self._offsets.setdefault(number, offset)
        require(
            known == offset or self._checks.truth(target.key).kept_from,
            "N3",
            f"{told}; an earlier answer named offset {known}",
        )

    def _note(self, number: int, outcome: Outcome, offset: int | None = None) -> None:
        self._history.writes.append(Write(self.name, self.target.place, number, 1, outcome, offset))


class _Answer(NamedTuple):
    """The result of one attempt."""

    outcome: Outcome
    offset: int | None = None
