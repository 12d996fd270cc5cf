"""Three whole brokers in one process and one event loop, each over `Files` of its own.

They come back at the addresses that they had: the image of a cluster names them. Neighbours:
`power_load` is what clients do to them, `power_losses` what happens to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from support.hosts import HOST, free_ports
from support.waiting import until
from tidelog_broker.config.settings import Settings
from tidelog_broker.core.metadata.commands import RegisterBroker, Suspect, decode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.errors import StorageFailure
from tidelog_broker.model import EntryType
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.platform import this_machine
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_broker.service import Service
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.writing.partition import Partition

BROKERS = (0, 1, 2)
CLUSTER = bytes(15) + b"c"
WHOLE_SECONDS_MAX = 30.0
"""How long a cluster may take to start, and its replicas to be equal."""

Key = tuple[bytes, int]


class Machines:
    """Three brokers on recorded disks. Each broker keeps its data in `data(number)`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        ports = free_ports(2 * len(BROKERS))
        self._ports = ports[: len(BROKERS)]
        self._peer_ports = ports[len(BROKERS) :]
        self.services: dict[int, Service] = {}
        """Those that run."""

    def machine(self, number: int) -> str:
        """The folder that is there before its broker is."""
        return f"{self.folder}/{number}"

    def data(self, number: int) -> str:
        return f"{self.machine(number)}/data"

    def format(self, files: Files) -> None:
        """The first broker's directory; the others join by seeds."""
        format_solo(files, self.data(0), cluster_id=CLUSTER, broker_id=0, directory_id=bytes(15) + b"d")

    @property
    def addresses(self) -> list[str]:
        return [f"{HOST}:{port}" for port in self._ports]

    async def start(self, number: int, files: Files, *, nats: str = "") -> None:
        service = Service(
            Settings(
                data_dir=Path(self.data(number)),
                broker_id=number,
                listeners=[f"internal={HOST}:{self._ports[number]}"],
                http="",
                peer_listener=f"{HOST}:{self._peer_ports[number]}",
                seeds=",".join(f"{HOST}:{port}" for port in self._peer_ports),
                nats=nats,
                checkpoint_interval_ms=50,
                sweep_interval_ms=100,
                deleted_delay_ms=0,
                disk_reserve_bytes=0,
            ),
            this_machine(files),
        )
        await service.start()
        self.services[number] = service

    async def start_all(self, disks: Sequence[Files], *, nats: str = "") -> None:
        async with asyncio.timeout(WHOLE_SECONDS_MAX), asyncio.TaskGroup() as group:
            for number in BROKERS:
                group.create_task(self.start(number, disks[number], nats=nats))

    async def stop(self, number: int) -> None:
        await self.services.pop(number).stop()

    async def stop_all(self) -> None:
        await asyncio.gather(*(self.stop(number) for number in list(self.services)))

    async def end(self, number: int) -> None:
        """It hands nothing over and says no word, as a process that is killed."""
        self.controller(number).failed(StorageFailure("killed"))
        await self.services.pop(number).stop()

    async def end_all(self) -> None:
        await asyncio.gather(*(self.end(number) for number in list(self.services)))

    def controller(self, number: int) -> QuorumController:
        return self.services[number].assembly.controller

    @property
    def image(self) -> ClusterImage:
        """The newest that one of them has."""
        return max((self.controller(n).image for n in self.services), key=lambda image: image.version)

    def suspects(self) -> list[Suspect]:
        """What the runs of now told of when they registered (R6)."""
        driver = self.controller(0)._driver
        runs = {self.controller(number).incarnation for number in self.services}
        entries = driver.log.entries(driver.log.snapshot_index + 1, driver.applied + 1)
        commands = [decode_command(one.payload) for one in entries if one.type is EntryType.COMMAND]
        registrations = [one for one in commands if isinstance(one, RegisterBroker)]
        return [suspect for one in registrations if one.incarnation in runs for suspect in one.suspects]

    def replicas(self, key: Key) -> list[Partition]:
        """Those that are served; a broker without it has none."""
        served = (service.broker.partitions.get(key) for service in self.services.values())
        return [one for one in served if one is not None]

    async def become_whole(self) -> None:
        """Until three vote, every partition has a leader and all in sync, and logs are equal and committed.

        Raises AssertionError if that takes too long, or a replica is set aside.
        """
        try:
            await until(self._is_whole, "a whole cluster", WHOLE_SECONDS_MAX)
        except AssertionError as error:
            error.add_note(self._state())
            raise

    def _is_whole(self) -> bool:
        for number, service in self.services.items():
            assert not service.broker.lost, f"broker {number} lost replicas: {service.broker.lost}"
        image = self.image
        if any(
            (controller := self.controller(number)).image.version != image.version
            or len(controller.voters) != len(BROKERS)
            for number in BROKERS
        ):
            return False
        return all(self._is_equal(key) for key in keys(image))

    def _is_equal(self, key: Key) -> bool:
        placed = self.image.partition(*key)
        assert placed is not None, "it is in the image"
        if placed.leader is None or len(placed.isr) != len(placed.replicas):
            return False
        replicas = self.replicas(key)
        ends = {end for one in replicas for end in (one.log.end_offset, one.high_watermark)}
        starts = {one.log.start_offset for one in replicas}
        leads = [one for one in replicas if one.leads]
        return len(replicas) == len(placed.replicas) and len(ends) == len(starts) == len(leads) == 1

    def _state(self) -> str:
        said = [f"{stream}: {stream.partitions}" for stream in self.image.streams.values()]
        for number, service in self.services.items():
            said += [f"{self.controller(number)}", f"{service.broker.state()}"]
        return "\n".join(said)


def keys(image: ClusterImage) -> list[Key]:
    return [
        (stream.id, number) for stream in image.streams.values() for number in range(len(stream.partitions))
    ]
