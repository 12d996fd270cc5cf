"""Finds the controller, on whichever broker it is, and sends it requests.

Raft says which broker leads. Before this broker hears a leader, it asks the broker that another one named,
and before that any broker that answers at a configured address (a seed). Neighbours: `control_connections`
carries the requests, `quorum.request_handler` answers them at the other end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from tidelog.errors import IndefiniteError, TidelogError, TimedOut, Unavailable
from tidelog_broker.core.raft.history import Relation
from tidelog_broker.errors import DirectoryDamaged, NotController
from tidelog_broker.membership.addresses import Address
from tidelog_broker.membership.control_connections import ControlConnections
from tidelog_broker.membership.session import RegistrationRefused
from tidelog_broker.membership.wire import Answer, Call, Failed, NotControllerResponse, Request, raised
from tidelog_broker.model import Recovery
from tidelog_broker.peers.errors import DirectoryRestored, OtherHistory, PeerError, WrongPeer
from tidelog_broker.peers.hello import Identity

log = structlog.get_logger(__name__)

ASK_SECONDS_MAX: Final = 1.0
"""How long one attempt of a request waits for its answer, if another attempt may follow."""

ASK_PAUSE_SECONDS: Final = 0.05
"""Between two attempts of a request."""

SEED_PAUSE_SECONDS: Final = 0.5
"""Between two rounds in which all seeds are asked, while no controller is known."""


class ControllerClient:
    """Sends requests to the controller. Belongs to one event loop."""

    def __init__(
        self,
        me: Callable[[], Identity],
        connections: ControlConnections,
        *,
        seeds: tuple[Address, ...],
        leader: Callable[[], int | None],
        answer_here: Callable[[Request], Awaitable[Answer]],
        candidate_found: Callable[[], None],
        other_history: Callable[[tuple[Recovery, ...]], Relation],
    ) -> None:
        """`candidate_found` is called when there is another broker to connect to.

        `other_history` gets the history of a seed that refuses this broker because of it, and returns how
        the history here relates to that one.
        """
        self._loop = asyncio.get_running_loop()
        self._me = me
        self._connections = connections
        self._seeds = seeds
        self._leader = leader
        self._answer_here = answer_here
        self._candidate_found = candidate_found
        self._other_history = other_history
        self._seeding: asyncio.Task[None] | None = None
        self.hint: int | None = None
        """The broker that is said to be the controller, or to know it, while no leader is heard."""
        self._clueless: dict[int, None] = {}
        """Brokers that did not know the controller: they are asked again only after all others."""

    def __repr__(self) -> str:
        return f"<ControllerClient leader={self._leader()} hint={self.hint}>"

    async def ask(self, request: Request, seconds: float) -> Answer:
        """Sends a request, and repeats it where that is safe, until `seconds` are over.

        Raises what the controller raises, with its type. If no controller answers, raises the last error of
        an attempt: `NotController`, `Unavailable` or an indefinite error.
        """
        deadline = self._loop.time() + seconds
        turn = 0
        while True:
            last: TidelogError
            try:
                answer = await self._once(request, turn, max(0.01, deadline - self._loop.time()))
            except (Unavailable, IndefiniteError) as error:
                if isinstance(request, Call) and not error.definite:
                    # The call may have been carried out. Only its client may decide to repeat it.
                    raise
                last, self.hint = error, None
            else:
                if isinstance(answer, Failed):
                    raise raised(answer)
                if not isinstance(answer, NotControllerResponse):
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
            reachable = self._connections.open
            if not reachable:
                raise NotController(None)
            target = reachable[turn % len(reachable)]
        patience = seconds if isinstance(request, Call) else min(seconds, ASK_SECONDS_MAX)
        return await self._connections.ask(target, request, patience)

    def _follow(self, answer: NotControllerResponse) -> None:
        if answer.controller is None or answer.controller == self._me().broker_id:
            # Otherwise two brokers that wait for the controller would ask each other for ever.
            if self.hint is not None:
                self._clueless[self.hint] = None
                self.hint = None
            return
        self.hint = answer.controller
        if answer.host:
            self._connections.learn(answer.controller, (answer.host, answer.port))
        self._candidate_found()

    # --- seeds

    async def start(self) -> None:
        """Asks the seeds for their identity once, and again while no controller is known.

        Raises `RegistrationRefused` if a seed refuses this broker, and `DirectoryDamaged` if the data
        directory here was restored from a copy (R19).
        """
        await self._identify_all(_raise_refusal)
        if self._seeds:
            self._seeding = asyncio.create_task(self._keep_asking(), name="seeds")

    async def stop(self) -> None:
        if self._seeding is not None:
            self._seeding.cancel()
            await asyncio.gather(self._seeding, return_exceptions=True)

    async def _keep_asking(self) -> None:
        while True:
            await asyncio.sleep(SEED_PAUSE_SECONDS)
            if self._leader() is None:
                await self._identify_all(
                    lambda error: log.warning("a seed refuses this broker", reason=str(error))
                )

    async def _identify_all(self, refused: Callable[[WrongPeer], None]) -> None:
        answers = await asyncio.gather(*(self._identify(seed, refused) for seed in self._seeds))
        found = [broker for broker in answers if broker is not None]
        if not found or self._leader() is not None or self.hint is not None:
            return
        fresh = [broker for broker in found if broker not in self._clueless]
        if not fresh:
            self._clueless.clear()
        self.hint = (fresh or found)[0]
        self._candidate_found()

    async def _identify(self, address: Address, refused: Callable[[WrongPeer], None]) -> int | None:
        """The broker that answers at an address; None: no broker answers, or it is this one."""
        try:
            found = await self._connections.identify(address)
        except OtherHistory as error:
            # The broker with the earlier history starts over, be it the seed or this one.
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
        self._connections.learn(found.broker_id, address)
        return found.broker_id


def _raise_refusal(error: WrongPeer) -> None:
    if isinstance(error, DirectoryRestored):
        raise DirectoryDamaged(str(error))
    raise RegistrationRefused(f"the cluster refuses this broker: {error}")
