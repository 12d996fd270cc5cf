"""N5: partitions that are to be handed over settle, each for itself, and go on if nothing comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.waiting import until
from tidelog.errors import TidelogError, TimedOut, Unavailable
from tidelog_broker.core.metadata.controller.handovers import Led
from tidelog_broker.hosting import handover as handing_over
from tidelog_broker.hosting.handover import HandingOver

EPOCH = 3


@dataclass
class End:
    """Of a log; and whether somebody has asked for it."""

    offset: int = 0
    asked: bool = False

    @property
    def end_offset(self) -> int:
        self.asked = True
        return self.offset


@dataclass
class Settling:
    """What of a partition counts for its handing over: appends taken, written, committed."""

    number: int
    leads: bool = True
    leaving: bool = False
    leader_epoch: int = EPOCH
    taken: int = 0
    written_count: int = 0
    high_watermark: int = 0
    log: End = field(default_factory=End)
    replica: Any = field(default_factory=lambda: SimpleNamespace(placed=SimpleNamespace(isr=(1, 2))))

    @property
    def key(self) -> tuple[bytes, int]:
        return b"s", self.number

    @property
    def led(self) -> Led:
        return Led(*self.key, EPOCH)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing_over, "HOLD_SECONDS", 0.05)
    monkeypatch.setattr(handing_over, "SETTLE_SECONDS_MAX", 0.2)
    monkeypatch.setattr(handing_over, "STOP_SECONDS_MAX", 0.2)


class Stage:
    def __init__(self, *partitions: Settling, error: TidelogError | None = None) -> None:
        self.told: list[Led] = []
        self.error = error
        self.handing_over = HandingOver(cast(Any, {one.key: one for one in partitions}), self.tell)

    async def tell(self, settled: Sequence[Led]) -> None:
        self.told += settled
        if self.error is not None:
            raise self.error


async def test_a_partition_has_settled_when_what_it_took_is_written_and_committed() -> None:
    one = Settling(0, taken=2, written_count=1)
    stage = Stage(one)

    stage.handing_over.wished([one.led])
    assert one.leaving
    one.log.offset = 9
    one.written_count = 2
    await until(lambda: one.log.asked, "all is written")
    assert stage.told == []
    # What comes from NATS meanwhile is not waited for.
    one.log.offset = 12
    one.high_watermark = 9

    await until(lambda: stage.told == [one.led], "the controller is told")
    assert one.leaving
    await until(lambda: not one.leaving, "it goes on")


async def test_one_that_does_not_settle_keeps_nobody_waiting() -> None:
    quick, slow = Settling(0), Settling(1, taken=1)
    stage = Stage(quick, slow)

    stage.handing_over.wished([quick.led, slow.led])

    await until(lambda: stage.told == [quick.led], "the controller is told of the other one")
    assert slow.leaving
    await until(lambda: not slow.leaving, "it goes on")
    assert stage.told == [quick.led]


async def test_a_wish_is_repeated_and_told_of_once() -> None:
    one = Settling(0)
    stage = Stage(one)

    for _ in range(3):
        stage.handing_over.wished([one.led])
    await until(lambda: not one.leaving, "it goes on")

    assert stage.told == [one.led]
    assert repr(stage.handing_over) == "<HandingOver under_way=0 stopping=False>"


async def test_one_whose_leadership_ends_meanwhile_is_not_told_of() -> None:
    one = Settling(0, taken=1)
    stage = Stage(one)
    stage.handing_over.wished([one.led])

    one.leads = False

    await until(lambda: "under_way=0" in repr(stage.handing_over), "it is over")
    assert stage.told == []


@pytest.mark.parametrize("error", [Unavailable("no controller"), TimedOut("nobody knows")])
async def test_without_a_controller_it_goes_on(error: TidelogError) -> None:
    one = Settling(0)
    stage = Stage(one, error=error)

    stage.handing_over.wished([one.led])

    await until(lambda: not one.leaving, "it goes on")


async def test_before_a_stop_everything_settles_and_takes_nothing_more() -> None:
    settled, alone = Settling(0), Settling(1, replica=SimpleNamespace(placed=SimpleNamespace(isr=(1,))))
    stage = Stage(settled, alone)
    stage.handing_over.wished([settled.led])

    await stage.handing_over.everything()
    await stage.handing_over.stop()

    assert (settled.leaving, alone.leaving) == (True, False)


async def test_a_stop_does_not_wait_for_ever() -> None:
    one = Settling(0, taken=1)

    await Stage(one).handing_over.everything()

    assert one.leaving
