"""R19: a data directory that was put back from a copy is refused, however often it is tried."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quorum.services import Brokers, Node
from tidelog_broker.errors import BrokerError, DataDirectoryError
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.files.os_files import OsFiles


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    made = Brokers(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


def starts(node: Node) -> int:
    """As its data directory counts them."""
    directory = DataDirectory.open(OsFiles(), str(node.data), reserve_bytes=0)
    directory.close()
    return directory.meta.start_count


async def refused(node: Node) -> str:
    with pytest.raises(BrokerError) as raised:
        await node.start()
    node.service = None
    node.forget_ports()
    return str(raised.value)


@pytest.mark.parametrize("controller", ["the same controller", "another controller"])
@pytest.mark.parametrize("runs", [1, 3], ids=["one run since the copy", "several runs since the copy"])
async def test_r19_a_directory_put_back_from_a_copy_is_refused_until_it_is_emptied(
    brokers: Brokers, tmp_path: Path, runs: int, controller: str
) -> None:
    await brokers.start(3)
    node, copy = brokers[2], tmp_path / "copy"
    await node.stop()
    shutil.copytree(node.data, copy)
    for _ in range(runs):
        await node.start()
        await node.stop()
    shutil.rmtree(node.data)
    shutil.copytree(copy, node.data)
    counted = starts(node)
    if controller == "another controller":
        # It does not remember how far the metadata log of the broker went.
        await brokers[0].restart()
        await brokers[1].restart()

    reasons = {await refused(node) for _ in range(runs + 2)}

    assert starts(node) == counted, "a refused start does not count"
    (reason,) = reasons
    assert "was put back from a copy" in reason
    assert "Empty the directory" in reason
    shutil.rmtree(node.data)
    await node.start()
    await brokers.eventually(lambda: brokers[0].quorum.image.brokers[2].starts == 1)


async def test_r19_a_directory_put_back_is_refused_by_the_only_other_voter_that_is_there(
    brokers: Brokers, tmp_path: Path
) -> None:
    await brokers.start(3)
    node, copy = brokers[2], tmp_path / "copy"
    await node.stop()
    shutil.copytree(node.data, copy)
    await node.start()
    await brokers.eventually(lambda: brokers[1].quorum.image.brokers[2].starts == 2)
    await node.stop()
    await brokers[0].stop()
    shutil.rmtree(node.data)
    shutil.copytree(copy, node.data)

    assert "was put back from a copy" in await refused(node)

    shutil.rmtree(node.data)
    await brokers[0].start()
    await node.start()
    await brokers.eventually(lambda: brokers[0].quorum.image.brokers[2].starts == 1)


async def test_r19_a_start_that_was_killed_before_it_registered_is_followed_by_others(
    brokers: Brokers,
) -> None:
    await brokers.start(3)
    node = brokers[2]
    await node.stop()
    directory = DataDirectory.open(OsFiles(), str(node.data), reserve_bytes=0)
    counted = directory.record_start()
    directory.close()

    await node.start()

    await brokers.eventually(lambda: brokers[0].quorum.image.brokers[2].starts == counted + 1)


@pytest.mark.parametrize("file", ["meta.json", "raft/hard-state", "raft/00000000000000000001.log"])
async def test_rot_in_a_data_directory_is_answered_with_what_heals_it(brokers: Brokers, file: str) -> None:
    await brokers.start(3)
    node = brokers[2]
    await node.stop()
    path = node.data / file
    rotten = bytearray(path.read_bytes())
    rotten[len(rotten) // 2] ^= 0x10
    path.write_bytes(rotten)

    with pytest.raises(DataDirectoryError) as raised:
        await node.start()
    node.service = None
    node.forget_ports()

    assert str(path) in str(raised.value)
    assert "empty the data directory and start the broker again: they refill it" in str(raised.value)
    assert "Do not put a copy of it back" in str(raised.value)
    shutil.rmtree(node.data)
    await node.start()
