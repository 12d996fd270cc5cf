"""Finds the controller, wherever it is, and asks it.

Who leads is what Raft hears; before it hears anybody, it is what another broker said, and before that
whoever answers at an address that somebody wrote down (a seed). Neighbours: `links`
has the connections, `quorum.request_handler` what is said at the other end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from tidelog.errors import IndefiniteError, TidelogError, TimedOut, Unavailable
from tidelog_broker.core.raft.history import Relation
from tidelog_broker.errors import DirectoryDamaged, NotController
from tidelog_broker.membership.links import Address, ControlLinks, who_is_there
from tidelog_broker.membership.session import RegistrationRefused
from tidelog_broker.membership.wire import Answer, Call, Elsewhere, Failed, Request, raised
from tidelog_broker.model import Recovery
from tidelog_broker.peers.errors import OtherHistory, PeerError, PutBack, WrongPeer
from tidelog_broker.peers.hello import Identity

log = structlog.get_logger(__name__)

ASK_SECONDS_MAX: Final = 1.0
"""How long one try of a request waits for its answer, if another one may follow."""

ASK_PAUSE_SECONDS: Final = 0.05
"""Between two tries of a request."""

SEED_PAUSE_SECONDS: Final = 0.5
"""Between two rounds of asking the seeds who they are, while no controller is known."""


class ControllerClient:
    """See the module. Of one event loop."""

    def __init__(
        self,
        me: Callable[[], Identity],
        links: ControlLinks,
        *,
        seeds: tuple[Address, ...],
        leader: Callable[[], int | None],
        answer_here: Callable[[Request], Awaitable[Answer]],
        hinted: Callable[[], None],
        other_history: Callable[[tuple[Recovery, ...]], Relation],
    ) -> None:
        """`hinted`: there is somebody new to be connected to. `other_history` is told that of a seed which
        refuses this broker for it, and says what the history here is to it."""
        self._loop = asyncio.get_running_loop()
        self._me = me
        self._links = links
        self._seeds = seeds
        self._leader = leader
        self._answer_here = answer_here
        self._hinted = hinted
        self._other_history = other_history
        self._seeding: asyncio.Task[None] | None = None
        self.hint: int | None = None
        """Who was said to be the controller, or to know, while no leader is heard."""
        self._clueless: dict[int, None] = {}
        """Who was asked for the controller and did not know: others are asked before they are again."""

    def __repr__(self) -> str:
        return f"<ControllerClient leader={self._leader()} hint={self.hint}>"

    async def ask(self, request: Request, seconds: float) -> Answer:
        """Asks again, where that is safe, until `seconds` are over.

        Raises what the controller raises, with its type; else `NotController`, `Unavailable`
        or an indefinite error, whichever was last.
        """
        deadline = self._loop.time() + seconds
        turn = 0
        while True:
            last: TidelogError
            try:
                answer = await self._once(request, turn, max(0.01, deadline - self._loop.time()))
            except (Unavailable, IndefiniteError) as error:
                if isinstance(request, Call) and not error.definite:
                    # It may have been done, and doing it twice is not for us to decide.
                    raise
                last, self.hint = error, None
            else:
                if isinstance(answer, Failed):
                    raise raised(answer)
                if not isinstance(answer, Elsewhere):
                    return answer
                last = raised(answer)
                self._follow(answer)
            if self._loop.time() + ASK_PAUSE_SECONDS >= deadline:
                raise last
            turn += 1
            await asyncio.sleep(ASK_PAUSE_SECONDS)

    async def _once(self, request: Request, turn: int, seconds: float) -> Answer:
        leader = self._leader()
        if leader == self._me().broker_id:
            try:
                async with asyncio.timeout(seconds):
                    return await self._answer_here(request)
            except TimeoutError:
                raise TimedOut(f"the controller did not answer within {seconds:g} s") from None
        target = leader if leader is not None else self.hint
        if target is None:
            reachable = self._links.open
            if not reachable:
                raise NotController(None)
            target = reachable[turn % len(reachable)]
        patience = seconds if isinstance(request, Call) else min(seconds, ASK_SECONDS_MAX)
        return await self._links.ask(target, request, patience)

    def _follow(self, answer: Elsewhere) -> None:
        if answer.controller is None or answer.controller == self._me().broker_id:
            # Two that wait for the controller would else ask each other for ever.
            if self.hint is not None:
                self._clueless[self.hint] = None
                self.hint = None
            return
        self.hint = answer.controller
        if answer.host:
            self._links.learn(answer.controller, (answer.host, answer.port))
        self._hinted()

    # --- seeds

    async def start(self) -> None:
        """Meets the seeds once, then whenever no controller is known.

        Raises `RegistrationRefused` if one of them will have nothing to do with this broker, and
        `DirectoryDamaged` if its data directory was put back from a copy (R19).
        """
        await self._meet_all(_refused)
        if self._seeds:
            self._seeding = asyncio.create_task(self._go_on(), name="seeds")

    async def stop(self) -> None:
        if self._seeding is not None:
            self._seeding.cancel()
            await asyncio.gather(self._seeding, return_exceptions=True)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(SEED_PAUSE_SECONDS)
            if self._leader() is None:
                await self._meet_all(lambda error: log.warning("a seed refuses this broker", why=str(error)))

    async def _meet_all(self, refused: Callable[[WrongPeer], None]) -> None:
        answers = await asyncio.gather(*(self._meet(seed, refused) for seed in self._seeds))
        found = [broker for broker in answers if broker is not None]
        if not found or self._leader() is not None or self.hint is not None:
            return
        fresh = [broker for broker in found if broker not in self._clueless]
        if not fresh:
            self._clueless.clear()
        self.hint = (fresh or found)[0]
        self._hinted()

    async def _meet(self, address: Address, refused: Callable[[WrongPeer], None]) -> int | None:
        """The broker that answers at an address; None: nobody, or this one itself."""
        try:
            found = await who_is_there(address, self._me)
        except OtherHistory as error:
            # A seed of an earlier history starts over, and this broker does if its own is the earlier one.
            if self._other_history(error.recoveries) is Relation.OTHER:
                refused(error)
            return None
        except WrongPeer as error:
            refused(error)
            return None
        except PeerError as error:
            log.debug("a seed does not answer", address=address, reason=str(error))
            return None
        if found.broker_id == self._me().broker_id:
            return None
        self._links.learn(found.broker_id, address)
        return found.broker_id


def _refused(error: WrongPeer) -> None:
    if isinstance(error, PutBack):
        raise DirectoryDamaged(str(error))
    raise RegistrationRefused(f"the cluster refuses this broker: {error}")
