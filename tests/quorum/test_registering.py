"""How long a broker tries to register, in simulated time."""

from __future__ import annotations

import pytest

from simulator.kernel.network import Network
from simulator.kernel.processes import Process
from simulator.kernel.wire import Conditions
from simulator.world import SECOND, World
from support.quorum_host import RecordingHost
from tidelog.errors import Unavailable
from tidelog_broker.core.metadata.controller.registration import Registration
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.errors import NotConnected
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.membership.failure_reporter import FailureReporter
from tidelog_broker.membership.session import TAKEN_SECONDS_MAX, RegistrationRefused, Session
from tidelog_broker.membership.wire import Answer, Done, Request

REGISTRATION = Registration(b"c" * 16, 2, b"run", b"d" * 16, ())


class Stage:
    """A session whose controller says what the test says, until some moment."""

    def __init__(self, error: Unavailable, seconds: float) -> None:
        self.world = World(1)
        network = Network(self.world, Conditions())
        self.process = Process(
            self.world, network, network.machine("here"), "here", None, lambda: (1, 10), lambda: None
        )
        self._error = error
        self._until_us = int(seconds * SECOND)
        self.outcome: list[BaseException | int] = []
        self.process.run(self._main(), self.outcome.append)

    async def _ask(self, request: Request, seconds: float) -> Answer:
        if self.world.now < self._until_us:
            raise self._error
        return Done(1)

    async def _main(self) -> int:
        clock = ClusterClock(lambda: 0, lambda: self.world.now)
        reporter = FailureReporter(2, b"run", self._ask, ClusterImage)
        session = Session(2, b"run", self._ask, ClusterImage, clock, reporter, RecordingHost())
        await session.register(REGISTRATION)
        await session.stop()
        return 0

    def run(self) -> BaseException | int:
        while not self.outcome:
            assert self.world.step(), "something is planned"
        return self.outcome[0]


def test_a_broker_that_reaches_nobody_goes_on_until_it_does() -> None:
    assert Stage(NotConnected(1), 3 * TAKEN_SECONDS_MAX).run() == 0


@pytest.mark.parametrize(
    ("seconds", "refused"), [(TAKEN_SECONDS_MAX / 2, False), (3 * TAKEN_SECONDS_MAX, True)]
)
def test_an_id_that_stays_taken_is_given_up_after_some_sessions(seconds: float, refused: bool) -> None:
    outcome = Stage(Unavailable("another run of broker 2 is there"), seconds).run()
    assert isinstance(outcome, RegistrationRefused) == refused
