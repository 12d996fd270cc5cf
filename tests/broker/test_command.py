"""The command `tidelog-broker`: wrong input gives a sentence and code 2, never a traceback."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest

from support.hosts import HOST
from tidelog.cli.local.processes import free_ports
from tidelog_broker import __main__ as command
from tidelog_broker import prepare_stop
from tidelog_broker.config.loading import load
from tidelog_broker.config.sentences import SettingsInvalid
from tidelog_broker.config.settings import Settings
from tidelog_broker.listener_addresses import parse_listen

ENDS_SECONDS_MAX = 30


class Wrong(NamedTuple):
    """Flags of `run` that cannot be used, and what the sentence about them must say."""

    flags: tuple[str, ...]
    said: str


class WrongFile(NamedTuple):
    """What stands in a settings file, and what the sentence about it must say."""

    content: bytes
    said: str


WRONG = [
    Wrong((), "data_dir is missing; give --data-dir"),
    Wrong(("--log-level", "xml"), "log_level is 'xml'; write debug, info, warning or error"),
    Wrong(("--flush-threads", "x"), "flush_threads is 'x'; write a whole number from 1 to 64"),
    Wrong(("--flush-threads", "65"), "flush_threads is '65'; write a whole number from 1 to 64"),
    Wrong(("--sweep-interval-ms", "1"), "sweep_interval_ms is '1'; write a whole number, at least 10"),
    Wrong(("--broker-id", "-1"), "broker_id is '-1'; write a whole number from 0 to 4294967295"),
    Wrong(("--http", "nowhere"), "http: address 'nowhere' has no port; write host:port"),
    Wrong(("--http", "host:²"), "http: 'host:²': '²' is not a port"),
    Wrong(("--listener", "a=b"), "listeners: listener 'a=b' has no port; write name=host:port"),
    Wrong(
        ("--listener", "a=b:1?tls=on"), "'?tls=on' is not known; write ?tls=server, ?tls=mutual or ?tls=off"
    ),
    Wrong(("--peer-listener", "b:1?tls=mutual"), "peer_tls says whether other brokers use TLS"),
    Wrong(
        ("--nats", "foo://bar"),
        "nats: the address of a NATS server must begin with nats:// or tls://, not with foo",
    ),
    Wrong(("--nats", "nats://a,nats://user:secret@b:x"), "nats: the port of NATS server b is not a port"),
]

WRONG_FILES = [
    WrongFile(b"a: [", "is not valid YAML: line 1, column 5"),
    WrongFile(b"- a", "holds a list; write each setting on a line"),
    WrongFile(b"nats=nats://user:secret@b", "holds a single value; write each setting on a line"),
    WrongFile(b"\xff\xfe\x00", "is not valid YAML"),
    WrongFile(b"rack: 2024-13-45", "is not valid YAML"),
    WrongFile(b"nope: 1", "there is no setting 'nope'"),
    WrongFile(b"1: 1", "there is no setting 1"),
    WrongFile(b"flush_threads: many", "flush_threads is 'many'; write a whole number from 1 to 64"),
    WrongFile(b"log_json: 7", "log_json is 7; write true or false"),
    WrongFile(b"rack: 7", "rack is 7; write text"),
    WrongFile(b"listeners: a=b:1", "listeners is 'a=b:1'; write a list of addresses, each as name=host:port"),
    WrongFile(b"nats: [nats://user:secret@b]", "nats is of the wrong kind; write text"),
]


def _sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a wrong call says, once it was seen to end as one."""
    assert command.run(arguments) == command.EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tidelog-broker: ")
    assert err.count("\n") == 1
    for word in ("Traceback", "Value error", "Input should", "secret"):
        assert word not in err
    return err


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: " ".join(wrong.flags))
def test_a_wrong_setting_is_named_with_its_value_and_what_is_right(
    wrong: Wrong, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data-dir", str(tmp_path)] if wrong.flags else []
    assert wrong.said in _sentence(["run", *data, *wrong.flags], capsys)


@pytest.mark.parametrize("wrong", WRONG_FILES, ids=lambda wrong: repr(wrong.content[:30]))
def test_a_wrong_settings_file_is_told_in_a_sentence(
    wrong: WrongFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(wrong.content)

    said = _sentence(["run", "--data-dir", str(tmp_path), "--config", str(path)], capsys)

    assert wrong.said in said


def test_a_settings_file_that_is_missing_is_not_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "nonexistent.yaml")

    assert path in _sentence(["run", "--data-dir", str(tmp_path), "--config", path], capsys)


def test_every_wrong_setting_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--log-level", "xml", "--flush-threads", "x"]

    assert command.run(["run", "--data-dir", str(tmp_path), *flags]) == command.EXIT_USAGE
    assert capsys.readouterr().err.count("\n") == 2


def test_listeners_in_the_environment_that_are_no_json_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_LISTENERS", "xx")

    said = _sentence(["run", "--data-dir", str(tmp_path)], capsys)

    assert "TIDELOG_LISTENERS is 'xx'; write a JSON list" in said


def test_a_long_value_is_cut_in_the_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid) as raised:
        load(data_dir=tmp_path, flush_threads="x" * 10_000)

    assert len(str(raised.value)) < 200


def test_flags_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("Data_Dir: file\nrack: file\nnats_name: file\nflush_threads: 7\n")
    monkeypatch.setenv("TIDELOG_RACK", "environment")
    monkeypatch.setenv("TIDELOG_NATS_NAME", "environment")

    settings = load(path, nats_name="flag", nats=" nats://a , ,tls://b:1")

    assert (str(settings.data_dir), settings.rack, settings.nats_name) == ("file", "environment", "flag")
    assert settings.flush_threads == 7


def test_an_empty_settings_file_sets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("# nothing yet\n")

    assert load(path, data_dir=tmp_path) == Settings(data_dir=tmp_path)


@pytest.mark.parametrize("port", ["65536", "1" * 5000, "-1", "٣"])
def test_a_port_is_a_number_up_to_65535(port: str) -> None:
    with pytest.raises(ValueError, match="is not a port; write a number up to 65535"):
        parse_listen(f"a=host:{port}")


@pytest.mark.parametrize("broker_id", ["-1", "4294967296", "99999999999", "x", "1.0", "1" * 5000])
def test_format_refuses_a_broker_id_before_it_touches_the_disk(
    broker_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "x1"

    said = _sentence(["format", "--data-dir", str(data), "--broker-id", broker_id], capsys)

    assert "write a whole number from 0 to 4294967295" in said
    assert broker_id[:50] in said
    assert not data.exists()


def test_the_largest_broker_id_can_be_formatted_and_asked_for(tmp_path: Path) -> None:
    data = str(tmp_path / "data")

    assert command.run(["format", "--data-dir", data, "--broker-id", "4294967295"]) == 0
    assert load(data_dir=data, broker_id="4294967295").broker_id == 4294967295


def test_recover_changes_nothing_without_a_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    command.run(["format", "--data-dir", str(data)])
    before = _files(data)
    capsys.readouterr()

    assert command.run(["recover", "--data-dir", str(data)]) == 0

    out, err = capsys.readouterr()
    nothing = "has no FAILED mark, so there is nothing to recover. Give --force to recover it anyway."
    assert out == f"{data} {nothing}\n"
    assert err == ""
    assert _files(data) == before


def _files(data: Path) -> dict[str, tuple[int, bytes]]:
    """All but the lock, which every command takes."""
    return {
        str(path): (path.stat().st_ino, path.read_bytes())
        for path in data.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def test_recover_keeps_the_mark_of_a_directory_that_cannot_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert command.run(["format", "--data-dir", str(data)]) == 0
    (data / "FAILED").write_text("a flush failed\n")
    (data / "raft" / "hard-state").unlink()

    # A process of its own: it sets up logging for good.
    done = subprocess.run(
        [sys.executable, "-m", "tidelog_broker", "recover", "--data-dir", str(data)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == command.EXIT_DAMAGED
    assert "hard-state is missing, and with it this broker's vote" in done.stderr
    assert "mended" not in done.stdout
    assert (data / "FAILED").exists()


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.run(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"tidelog-broker {version('tidelog')}\n"


def test_the_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.run(["--help"])

    said = " ".join(capsys.readouterr().out.split())
    assert command.EXIT_CODES in said
    for code in (
        command.EXIT_FAILED,
        command.EXIT_USAGE,
        command.EXIT_DAMAGED,
        command.EXIT_INTERRUPTED,
    ):
        assert f"; {code} " in said


def test_a_data_directory_that_may_not_be_believed_has_an_exit_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would keep what is captured here.
    monkeypatch.setattr(command, "configure_logging", lambda settings: None)
    data = tmp_path / "data"
    assert command.run(["format", "--data-dir", str(data)]) == 0
    rotten = data / "meta.json"
    rotten.write_bytes(rotten.read_bytes().replace(b'"broker_id"', b'"broker-id"'))

    code = command.run(["cluster-recover", "--data-dir", str(data)])

    assert code == command.EXIT_DAMAGED
    assert "empty the data directory and start the broker again" in capsys.readouterr().err


@pytest.mark.parametrize("left", ["streams", "raft"])
@pytest.mark.parametrize("arguments", [["run"], ["recover"], ["format"]], ids=lambda one: one[0])
def test_a_data_directory_that_lost_its_meta_is_damaged(
    arguments: list[str],
    left: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It would keep what is captured here.
    monkeypatch.setattr(command, "configure_logging", lambda settings: None)
    # That is for the rest of the process.
    monkeypatch.setattr(gc, "freeze", lambda: None)
    data = tmp_path / "data"
    assert command.run(["format", "--data-dir", str(data)]) == 0
    (data / "meta.json").unlink()
    if left == "streams":
        (data / "raft").rename(data / "streams")

    code = command.run([*arguments, "--data-dir", str(data)])

    assert code == command.EXIT_DAMAGED
    said = capsys.readouterr().err
    assert "meta.json" in said
    assert "empty the data directory and start the broker again" in said
    assert "run `tidelog-broker format" not in said


def test_what_nobody_foresaw_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def surprise(options: object) -> int:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(command, "_format", surprise)

    with pytest.raises(ValueError, match="a mistake of ours"):
        command.run(["format", "--data-dir", "x"])


def _told_to_prepare(tmp_path: Path, capsys: pytest.CaptureFixture[str], *listeners: str) -> tuple[str, str]:
    """What `prepare-stop` of a broker with these listeners prints, once it was seen to fail."""
    flags = [flag for listener in listeners for flag in ("--listener", listener)]
    assert command.run(["prepare-stop", "--data-dir", str(tmp_path), *flags]) == command.EXIT_FAILED
    out, err = capsys.readouterr()
    return out, err


def test_prepare_stop_ends_at_once_where_nothing_serves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)

    out, err = _told_to_prepare(tmp_path, capsys, f"internal=0.0.0.0:{port}")

    assert out.startswith(f"no broker serves at 127.0.0.1:{port}: ")
    assert err == ""


def test_prepare_stop_does_not_wait_for_a_broker_that_is_only_about_to_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_stop, "THERE_SECONDS_MAX", 0.2)
    with socket.create_server((HOST, 0)) as silent:
        target = f"{HOST}:{silent.getsockname()[1]}"

        assert _told_to_prepare(tmp_path, capsys, target)[0].startswith(f"no broker serves at {target}: ")


def test_prepare_stop_needs_a_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "give a listener a port" in _told_to_prepare(tmp_path, capsys, f"a={HOST}:0")[1]


def test_prepare_stop_waits_no_longer_than_brokers_take_a_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _sentence(["prepare-stop", "--data-dir", str(tmp_path), "--timeout-seconds", "601"], capsys)

    assert "--timeout-seconds is 601; write a whole number from 0 to 600" in said


@pytest.mark.parametrize(("listeners", "target"), [
    (["internal=0.0.0.0:9210@broker-0.tidelog:9210"], "127.0.0.1:9210"),
    (["internal=[::]:9210"], "[::1]:9210"),
    (["internal=[fe80::1]:9210"], "[fe80::1]:9210"),
    (["a=10.0.0.2:0", "b=10.0.0.2:9310"], "10.0.0.2:9310"),
    (["internal=localhost:9210"], "localhost:9210"),
    (["a=h:1?tls=mutual", "b=h:2@x:9?tls=server", "c=h:3?tls=off"], "h:3"),
    (["a=h:1?tls=mutual", "b=h:2@x:9?tls=server"], "h:2"),
])  # fmt: skip
def test_a_broker_is_reached_from_beside_it(listeners: list[str], target: str) -> None:
    assert prepare_stop.target_of(prepare_stop.listener_of(listeners)) == target


def test_an_interrupted_command_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    # It waits for the settings: once this end of the pipe is open, the command reads.
    path = tmp_path / "pipe"
    os.mkfifo(path)
    arguments = ["run", "--data-dir", str(tmp_path), "--config", str(path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog_broker", *arguments], stderr=subprocess.PIPE, text=True
    )
    with path.open("wb"):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=ENDS_SECONDS_MAX)

    assert process.returncode == 130
    assert said == ""


def test_recover_can_be_forced_where_the_disk_did_not_take_the_mark(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert command.run(["format", "--data-dir", str(data)]) == 0
    # A process of its own: it sets up logging for good.
    done = subprocess.run(
        [sys.executable, "-m", "tidelog_broker", "recover", "--data-dir", str(data), "--force"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the directory is mended; the broker can start\n")
