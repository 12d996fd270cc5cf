"""Each kind of fault begins and ends: no link stays cut, no disk slow, no broker frozen or down."""

from __future__ import annotations

import pytest

from chaos.faults import Faults
from chaos.links import Links
from chaos.plan import Fault, Kind

BROKERS = (0, 1, 2)


class FakeProxy:
    def __init__(self, said: list[str], broker: int) -> None:
        self._said = said
        self._broker = broker

    def reset(self) -> int:
        self._said.append(f"reset {self._broker}")
        return 1


class FakeCluster:
    """Notes the calls, and the state that they leave."""

    brokers = BROKERS

    def __init__(self) -> None:
        self.said: list[str] = []
        self.links = Links()
        self.proxies = [FakeProxy(self.said, broker) for broker in BROKERS]
        self.down: set[int] = set()
        self.frozen: set[int] = set()
        self.state: dict[int, str] = {}
        self.erased: list[int] = []
        self.down_most = 0

    def _ends(self, broker: int, how: str) -> None:
        self.said.append(f"{how} {broker}")
        self.down.add(broker)
        self.down_most = max(self.down_most, len(self.down))

    async def kill(self, broker: int) -> None:
        self._ends(broker, "kill")

    async def stop(self, broker: int) -> None:
        self._ends(broker, "stop")

    async def launch(self, broker: int) -> None:
        assert broker in self.down
        self.said.append(f"launch {broker}")
        self.down.remove(broker)

    async def ready(self, broker: int) -> None:
        assert broker not in self.down

    async def erase(self, broker: int) -> None:
        assert broker in self.down
        self.erased.append(broker)

    def freeze(self, broker: int) -> None:
        self.said.append(f"freeze {broker}")
        self.frozen.add(broker)

    def set_clock(self, broker: int, days: int) -> None:
        self.said.append(f"clock {broker} {days}")

    def thaw(self, broker: int) -> None:
        self.frozen.remove(broker)

    def tell_disk(self, broker: int, line: str) -> None:
        self.said.append(f"disk {broker} {line}")
        self.state[broker] = line


class FakeVolumes:
    def __init__(self, cluster: FakeCluster) -> None:
        self._said = cluster.said

    async def put_back(self, broker: int, seconds: float, healed: object) -> None:
        self._said.append(f"put back {broker}")

    async def rot(self, broker: int) -> None:
        self._said.append(f"rot {broker}")


class FakeAdministration:
    def __init__(self, cluster: FakeCluster) -> None:
        self._said = cluster.said

    async def move_away_and_back(self, broker: int, seconds: float) -> None:
        self._said.append(f"away and back {broker}")

    async def switch_durability(self, seconds: float) -> None:
        self._said.append("durability")


async def done(kind: Kind) -> tuple[FakeCluster, list[str]]:
    cluster, healed = FakeCluster(), []

    async def wait_healed(what: str) -> None:
        healed.append(what)

    faults = Faults(cluster, wait_healed, FakeVolumes(cluster), FakeAdministration(cluster))  # type: ignore[arg-type]
    await faults.perform(Fault(kind, broker=1, other=2, seconds=0.01, flush_seconds=0.2, days=30))
    assert faults.done == {kind: 1}
    return cluster, healed


@pytest.mark.parametrize("kind", Kind)
async def test_every_fault_is_undone_at_its_end(kind: Kind) -> None:
    cluster, _ = await done(kind)

    links = [(one, other) for one in BROKERS for other in BROKERS if one != other]
    assert not any(cluster.links.is_cut(link) for link in links)
    assert (cluster.down, cluster.frozen) == (set(), set())
    assert set(cluster.state.values()) <= {"sound"}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Kind.KILL, ["kill 1", "launch 1"]),
        (Kind.STOP, ["stop 1", "launch 1"]),
        (Kind.FREEZE, ["freeze 1"]),
        (Kind.SLOW_DISK, ["disk 1 slow 0.200", "disk 1 sound"]),
        (Kind.FULL_DISK, ["disk 1 full", "disk 1 sound"]),
        (Kind.RESET, ["reset 0", "reset 1", "reset 2"]),
        (Kind.ISOLATE, []),
        (Kind.OLD_VOLUME, ["put back 1"]),
        (Kind.ROT, ["rot 1"]),
        (Kind.CLOCK, ["clock 1 30", "clock 1 0"]),
        (Kind.REASSIGN, ["away and back 1"]),
        (Kind.DURABILITY, ["durability"]),
    ],
)
async def test_a_fault_acts_on_the_broker_that_it_names(kind: Kind, said: list[str]) -> None:
    cluster, _ = await done(kind)

    assert cluster.said == said


async def test_a_lost_disk_is_erased_while_its_broker_is_down_and_is_then_healed() -> None:
    cluster, healed = await done(Kind.LOST_DISK)

    assert cluster.erased == [1]
    assert healed == ["broker 1 has copied its replicas again"]


async def test_kill_all_ends_all_brokers_at_once_and_roll_one_at_a_time() -> None:
    together, _ = await done(Kind.KILL_ALL)
    rolling, healed = await done(Kind.ROLL)

    assert together.down_most == len(BROKERS)
    assert rolling.down_most == 1
    assert len(healed) == len(BROKERS)
