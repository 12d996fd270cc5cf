"""``tidelog cluster`` on three broker processes: looked at, moved, drained, killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Answer, Call, call
from support.broker import BrokerProcess
from support.hosts import HOST, free_ports
from tidelog.cli.errors import Exit
from tidelog_broker.model import Configuration, Entry, EntryType, Voter
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.raft.recovery import open_raft_log

WAIT_SECONDS = 30.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    folder = tmp_path_factory.mktemp("trio")
    made: list[BrokerProcess] = []
    ports = free_ports(3)
    seeds = ",".join(f"{HOST}:{port}" for port in ports)
    try:
        for number, port in enumerate(ports):
            (folder / str(number)).mkdir()
            flags = ("--broker-id", str(number), "--peer-listener", f"{HOST}:{port}", "--seeds", seeds)
            made.append(BrokerProcess(folder / str(number), flags=flags))
        format_solo(OsFiles(), str(made[0].data), cluster_id=b"c" * 16, broker_id=0, directory_id=b"d" * 16)
        for broker in made:
            broker.launch()
        for broker in made:
            broker.wait_ready()
        yield made
    finally:
        for broker in made:
            if broker.running:
                broker.kill()


@pytest.fixture
def trio(brokers: list[BrokerProcess], monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Calls a command in this process, against the second of three voters; takes away the streams left."""
    monkeypatch.setenv("TIDELOG_SERVER", brokers[1].address)

    def calling(*words: object) -> Answer:
        return call(monkeypatch, words)

    # Two of them joined, and voters are added one after the other.
    eventually(lambda: found(calling, "cluster", "describe")["voters"] == [0, 1, 2])
    yield calling
    for stream in found(calling, "stream", "list"):
        assert calling("stream", "delete", stream["name"], "--yes").code == 0


def found(trio: Call, *words: object) -> Any:
    answer = trio(*words, "--output", "json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def eventually(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_SECONDS
    while not (seen := look()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)
    return seen


def replicas_of(trio: Call, stream: str) -> list[int]:
    (partition,) = found(trio, "stream", "describe", stream)["partitions"]
    replicas: list[int] = partition["replicas"]
    return replicas


def test_a_cluster_is_shown_with_its_brokers_and_copies(trio: Call) -> None:
    assert trio("stream", "create", "shown", "--replication-factor", 3).code == 0
    assert trio("produce", "shown", "x", "y").code == 0

    eventually(lambda: [one["lag"] for one in found(trio, "cluster", "replicas", "shown")] == [0, 0, 0])
    cluster = found(trio, "cluster", "describe")

    assert [broker["state"] for broker in cluster["brokers"]] == ["active"] * 3
    assert [broker["voter"] for broker in cluster["brokers"]] == [True] * 3
    assert cluster["under_replicated_count"] == 0
    text = trio("cluster", "describe").out
    assert "yes, controller" in text
    assert "in trouble" not in text
    rows = trio("cluster", "replicas", "shown").out.splitlines()
    assert sorted(row.split()[2] for row in rows[1:]) == ["follower", "follower", "leader"]
    assert found(trio, "cluster", "replicas", "shown", "--under-replicated") == []
    assert trio("cluster", "replicas", "nothing").code == Exit.NOT_FOUND


def test_replicas_are_moved_and_leaders_elected(trio: Call) -> None:
    assert trio("stream", "create", "moved", "--replication-factor", 2).code == 0
    first, second = replicas_of(trio, "moved")
    (third,) = {0, 1, 2} - {first, second}

    would = found(trio, "cluster", "reassign", "moved", "--replicas", f"0={third},{first}", "--validate-only")
    moved = trio("cluster", "reassign", "moved", "--replicas", f"0={third},{first}", "--wait")

    assert (would[0]["adding"], would[0]["removing"]) == ([third], [second])
    assert moved.code == 0, moved.err
    assert replicas_of(trio, "moved") == [third, first]
    assert found(trio, "cluster", "reassignments") == []
    assert trio("cluster", "reassignments", "--cancel").out == "nothing moves\n"
    # The one that leads was asked to before the preferred one had joined, or it leads by now.
    assert trio("cluster", "elect", "moved").code == 0
    (partition,) = found(trio, "stream", "describe", "moved")["partitions"]
    assert partition["leader"] == third
    assert trio("cluster", "elect").out.startswith("nothing to do")


def test_what_moves_is_throttled(trio: Call) -> None:
    assert trio("cluster", "throttle", "20MiB").out == (
        "limit for replicas that lag far behind: 20MiB a second from broker to broker\n"
    )
    assert "20.0 MiB a second from broker to broker" in trio("cluster", "describe").out
    assert found(trio, "cluster", "throttle", "0") == {"throttle_bytes_per_second": None}
    assert "throttle" not in trio("cluster", "describe").out
    assert trio("cluster", "throttle", "fast").code == Exit.USAGE


def test_a_broker_is_drained_and_comes_back(trio: Call) -> None:
    assert trio("stream", "create", "emptied", "--replication-factor", 1, "--partitions", 3).code == 0

    drained = trio("cluster", "drain", 2, "--wait", "--timeout", "30s")

    assert (drained.code, drained.out) == (0, "broker 2 is drained\n")
    described = found(trio, "cluster", "describe")["brokers"][2]
    assert (described["state"], described["replicas"]) == ("cordoned", 0)
    assert trio("cluster", "uncordon", 2).out == "broker 2 is not cordoned\n"
    begun = found(trio, "cluster", "reassign", "emptied", "--wait")
    assert [one["adding"] for one in begun] == [[2]]
    assert trio("cluster", "reassign", "emptied").out == "nothing to move\n"


def test_a_broker_that_may_not_stop_yet_ends_with_code_4_and_says_why(
    trio: Call, brokers: list[BrokerProcess]
) -> None:
    create = ("stream", "create", "needed", "--replication-factor", 3, "--min-insync-replicas", 2)
    assert trio(*create).code == 0
    assert trio("cluster", "prepare-stop", 0).code == 0

    kept = trio("cluster", "prepare-stop", 2, "--timeout", "0s")

    assert kept.code == Exit.UNAVAILABLE
    assert kept.out.startswith("broker 2 must not stop yet, after 0s\nwaits: needed/0: too few in sync\n")
    answer = trio("cluster", "prepare-stop", 2, "--timeout", "0s", "-o", "json")
    assert json.loads(answer.out)["hindrances"][0]["blocks"]
    assert brokers[0].stop() == 0
    brokers[0].start()
    eventually(lambda: found(trio, "cluster", "describe")["brokers"][0]["state"] == "active")


def test_a_prepared_stop_is_undone(trio: Call) -> None:
    assert trio("stream", "create", "stays", "--replication-factor", 3).code == 0
    prepared = trio("cluster", "prepare-stop", 0, "--timeout", "30s")
    assert prepared.code == 0, prepared.err
    assert "tidelog cluster prepare-stop 0 --undo" in prepared.out
    assert found(trio, "cluster", "describe")["brokers"][0]["state"] == "stopping"

    undone = trio("cluster", "prepare-stop", 0, "--undo")

    assert (undone.code, undone.err) == (0, "")
    assert undone.out.startswith("broker 0 is not stopping")
    assert found(trio, "cluster", "describe")["brokers"][0]["state"] == "active"


def test_what_loses_data_is_asked_for(trio: Call) -> None:
    assert trio("stream", "create", "kept", "--replication-factor", 3).code == 0

    unclean = trio("cluster", "elect", "--unclean", "kept/0", "--broker", 1)
    unregister = trio("cluster", "unregister", 2)

    assert (unclean.code, unregister.code) == (Exit.USAGE, Exit.USAGE)
    assert "Broker 1 holds the records below offset 0" in unclean.err
    assert "lost for good" in unclean.err
    assert "broker 2 is alive and holds" in unregister.err, "it is not asked for what is refused"
    refused = trio("cluster", "elect", "--unclean", "kept/0", "--broker", 1, "--yes")
    assert refused.code == Exit.USAGE
    assert "would lose records for nothing" in refused.err


def test_an_unclean_election_of_a_quarantined_replica_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: Call
) -> None:
    with BrokerProcess(tmp_path) as broker:
        monkeypatch.setenv("TIDELOG_SERVER", broker.address)
        assert offline("stream", "create", "seg").code == 0
        assert offline("produce", "seg", "x").code == 0
        broker.stop()
        next(broker.data.glob("streams/seg~*/0/leader-epochs")).unlink()
        broker.start()
        monkeypatch.setenv("TIDELOG_SERVER", broker.address)
        (replica,) = found(offline, "cluster", "replicas", "seg")
        assert replica["state"] == "quarantined"

        refused = offline("cluster", "elect", "--unclean", "seg/0", "--broker", 0, "--yes")

    assert refused.code == Exit.USAGE
    assert "Broker 0 has no usable log of seg/0: its replica is quarantined" in refused.err
    assert "holds everything that was committed" not in refused.err
    assert "no election of that broker helps" in refused.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("drain", 2, "--timeout", "soon"), "is not a duration"),
        (("remove-voter", 0), "no other broker could vote in place of broker 0"),
        (("unregister", 1, "--yes"), "is alive and holds"),
        (("elect", "--broker", 1), "--broker needs --unclean"),
        (("elect", "--unclean", "orders", "--broker", 1), "is not a partition; write it like orders/0"),
        (("elect", "--unclean", "orders/0"), "needs --broker"),
        (("reassign", "--replicas", "0=1"), "--replicas needs exactly one stream"),
        (("reassign", "a", "--replicas", "0:1"), "is not PARTITION=BROKER"),
        (("reassign", "a", "--replicas", "0=1,x"), "is not a list of brokers"),
        (("reassign", "a", "--replicas", "0=1", "--replicas", "0=2"), "partition 0 is given twice"),
        (
            ("reassign", "a", "--replicas", "0=1", "--brokers", "1"),
            "--brokers and --moves-max cannot be used",
        ),
    ],
)
def test_nonsense_ends_with_code_2_and_a_sentence(
    trio: Call, words: tuple[object, ...], sentence: str
) -> None:
    assert trio("stream", "create", "sense", "--replication-factor", 3).code == 0
    answer = trio("cluster", *words)

    assert (answer.code, answer.out) == (Exit.USAGE, "")
    assert sentence in answer.err


def test_a_recovery_by_force_shows_what_there_is_and_does_it_once(tmp_path: Path, offline: Call) -> None:
    folder = _voter_of_three(tmp_path / "data")

    looked = found(offline, "cluster", "recover", "--data-dir", folder)
    done = offline("cluster", "recover", "--data-dir", folder, "--force")
    again = offline("cluster", "recover", "--data-dir", folder, "--force")

    assert (looked["voters"], looked["last_index"], looked["forced"]) == ([0, 1, 2], 3, False)
    assert done.code == again.code == 0
    assert "Broker 0 is the only voter now. Start it." in done.out
    assert "Changes of the metadata after entry 3 (20" in done.err, "which ones, and since when"
    assert "Known brokers: none;" in done.err
    assert "Never start brokers 1, 2 with their old data directories again" in done.err
    assert "There is nothing to recover" in again.out
    both = offline("cluster", "recover", "--data-dir", folder, "--force", "--start-over")
    assert (both.code, both.out) == (Exit.USAGE, "")
    assert offline("cluster", "recover", "--data-dir", tmp_path / "none").code == Exit.NOT_FOUND


def _voter_of_three(path: Path) -> Path:
    files, voters = OsFiles(), tuple(Voter(number, bytes([number]) * 16) for number in range(3))
    format_solo(files, str(path), cluster_id=b"c" * 16, broker_id=0, directory_id=voters[0].directory_id)
    directory = DataDirectory.open(files, str(path), reserve_bytes=0)
    raft_log = open_raft_log(files, directory.raft_folder, same_boot=True, reserve=directory.reserve)
    raft_log.append([Entry(3, 1, EntryType.CONFIGURATION, Configuration(voters).encode())])
    raft_log.sync()
    raft_log.close()
    directory.close()
    return path
