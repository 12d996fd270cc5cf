"""What goes in by `produce` comes out by `consume`, in every format."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.conftest import COMMAND
from tidelog.cli.errors import Exit

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 20.0


def lines(answer: Any) -> list[str]:
    assert answer.code == 0, answer.err
    return list(answer.out.splitlines())


def test_values_on_the_command_line_are_answered_with_their_offsets(tidelog: Any, stream: str) -> None:
    assert lines(tidelog("produce", stream, "a", "b")) == [f"{stream}/0 offset 0", f"{stream}/0 offset 1"]
    assert lines(tidelog("consume", stream)) == ["a", "b"]


def test_lines_of_standard_input_become_records(piped: Any, tidelog: Any, stream: str) -> None:
    answer = piped("produce", stream, "--output", "json", given=b"one\ntwo\n\nlast")

    assert json.loads(answer.out)["records"] == 4
    assert tidelog("consume", stream).raw == b"one\ntwo\n\nlast\n"


def test_a_carriage_return_belongs_to_the_value(piped: Any, tidelog: Any, stream: str) -> None:
    assert piped("produce", stream, given=b"one\r\ntwo\r").code == 0

    assert tidelog("consume", stream).raw == b"one\r\ntwo\r\n"


def test_lines_of_windows_text_are_stored_without_carriage_returns(
    piped: Any, tidelog: Any, stream: str
) -> None:
    assert piped("produce", stream, "--crlf", given=b"one\r\ntwo\nthree\r").code == 0

    assert tidelog("consume", stream).raw == b"one\ntwo\nthree\n"


def test_what_consume_prints_as_json_is_as_the_document_says(tidelog: Any, stream: str) -> None:
    document = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"`({\"value\": .*?})`", document)

    assert tidelog("produce", stream, "--format", "json", text).code == 0

    printed = json.loads(tidelog("consume", stream, "--format", "json").out)
    assert json.loads(text).items() <= printed.items()


def test_a_hundred_thousand_lines_come_out_as_they_went_in(tidelog: Any, stream: str, tmp_path: Path) -> None:
    text = b"".join(b"line %d\n" % number for number in range(100_000))
    (tmp_path / "lines").write_bytes(text)

    assert tidelog("produce", stream, "--file", tmp_path / "lines", "--compression", "lz4").code == 0

    assert tidelog("consume", stream).raw == text


def test_a_whole_file_can_be_one_record(tidelog: Any, stream: str, tmp_path: Path) -> None:
    (tmp_path / "whole").write_bytes(b"a\nb\n")

    assert tidelog("produce", stream, "--file", tmp_path / "whole", "--format", "raw").code == 0

    assert json.loads(tidelog("consume", stream, "--format", "json").out)["value"] == "a\nb\n"


def test_key_headers_and_subject_are_stored(tidelog: Any, stream: str) -> None:
    words = ("--key", "k", "--header", "a=1", "--header", "a=2", "--subject", "shop.eu")
    assert tidelog("produce", stream, "v", *words).code == 0

    record = json.loads(tidelog("consume", stream, "--format", "json").out)
    assert (record["key"], record["value"], record["subject"]) == ("k", "v", "shop.eu")
    assert record["headers"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]


def test_a_separator_splits_key_and_value(tidelog: Any, stream: str) -> None:
    assert tidelog("produce", stream, "k:v:w", "--key-separator", ":").code == 0

    record = json.loads(tidelog("consume", stream, "--format", "json").out)
    assert (record["key"], record["value"]) == ("k", "v:w")


@pytest.mark.parametrize("kind", ["json", "arrow"])
def test_what_consume_writes_produce_takes(kind: str, tidelog: Any, piped: Any, stream: str) -> None:
    tidelog("produce", stream, "x", "--key", "k", "--header", "h=1", "--subject", "s")
    first = tidelog("consume", stream, "--format", kind).raw

    assert piped("produce", stream, "--format", kind, given=first).code == 0

    one, two = (json.loads(line) for line in lines(tidelog("consume", stream, "--format", "json")))
    where = ("offset", "append_time", "leader_epoch")
    assert {name: one[name] for name in one if name not in where} == {
        name: two[name] for name in two if name not in where
    }


def test_parquet_has_every_column_and_can_be_produced_again(
    tidelog: Any, stream: str, tmp_path: Path
) -> None:
    tidelog("produce", stream, "plain")
    tidelog("produce", stream, "keyed", "--key", "k", "--header", "h=1")
    file = tmp_path / "records.parquet"

    assert lines(tidelog("consume", stream, "--format", "parquet", "--output-file", file)) == [
        f"2 records in {file}"
    ]

    table = pq.read_table(file)
    assert table.column_names == ["partition", "offset", "key", "value", "headers", "subject", "timestamp"]
    assert table["offset"].to_pylist() == [0, 1]
    assert table["key"].to_pylist() == [None, b"k"]
    assert tidelog("produce", stream, "--format", "parquet", "--file", file).code == 0
    assert lines(tidelog("consume", stream)) == ["plain", "keyed"] * 2


def test_arrow_is_an_ipc_stream(tidelog: Any, stream: str) -> None:
    tidelog("produce", stream, "a", "b", "c")

    table = pa.ipc.open_stream(
        io.BytesIO(tidelog("consume", stream, "--format", "arrow", "--max", 2).raw)
    ).read_all()

    assert table["value"].to_pylist() == [b"a", b"b"]


def test_an_empty_stream_is_an_empty_answer_in_every_format(
    tidelog: Any, stream: str, tmp_path: Path
) -> None:
    assert tidelog("consume", stream).raw == b""
    assert tidelog("consume", stream, "--format", "json").raw == b""
    assert pa.ipc.open_stream(tidelog("consume", stream, "--format", "arrow").raw).read_all().num_rows == 0
    tidelog("consume", stream, "--format", "parquet", "--output-file", tmp_path / "empty")
    assert pq.read_table(tmp_path / "empty").num_rows == 0


def test_from_and_until_bound_what_is_read(tidelog: Any, stream: str) -> None:
    tidelog("produce", stream, *(str(number) for number in range(10)))

    assert lines(tidelog("consume", stream, "--from", 3, "--until", 5)) == ["3", "4"]
    assert lines(tidelog("consume", stream, "--from", 8)) == ["8", "9"]
    assert lines(tidelog("consume", stream, "--from", "latest")) == []
    assert lines(tidelog("consume", stream, "--max", 1)) == ["0"]
    assert len(lines(tidelog("consume", stream, "--from", "1h"))) == 10
    assert lines(tidelog("consume", stream, "--until", "1h")) == []


def test_a_time_ends_each_partition_at_its_first_later_record(piped: Any, tidelog: Any, stream: str) -> None:
    records = [{"value": str(day), "timestamp": f"2020-01-0{day}T00:00:00Z"} for day in range(1, 6)]
    piped("produce", stream, "--format", "json", given="\n".join(map(json.dumps, records)).encode())

    assert lines(
        tidelog("consume", stream, "--from", "2020-01-02T00:00:00Z", "--until", "2020-01-04T00:00:00Z")
    ) == ["2", "3"]


def test_only_records_of_some_subjects_or_keys_are_read(tidelog: Any, stream: str) -> None:
    for value, key, subject in (("a", "1", "s.eu"), ("b", "2", "s.us"), ("c", "1", "t"), ("d", "3", "s.eu")):
        tidelog("produce", stream, value, "--key", key, "--subject", subject)

    assert lines(tidelog("consume", stream, "--subject", "s.*")) == ["a", "b", "d"]
    assert lines(tidelog("consume", stream, "--subject", "s.us", "--subject", "t")) == ["b", "c"]
    assert lines(tidelog("consume", stream, "--key", "1", "--key", "3", "--subject", "s.>")) == ["a", "d"]
    assert lines(tidelog("consume", stream, "--key", "4", "--until", "1h")) == []


def test_details_say_where_and_when(tidelog: Any, stream: str) -> None:
    tidelog("produce", stream, "v", "--key", "k", "--subject", "s.t")

    place, value = lines(tidelog("consume", stream, "--details"))[0].split("\t")
    assert value == "v"
    assert place.startswith(f"{stream}/0@0 20")
    assert place.endswith(" s.t key=k")


def test_bytes_that_are_no_text_are_base64_in_json(piped: Any, tidelog: Any, stream: str) -> None:
    piped("produce", stream, "--format", "raw", given=b"\xff\x00")

    assert json.loads(tidelog("consume", stream, "--format", "json").out)["value_base64"] == "/wA="
    assert tidelog("consume", stream).raw == b"\xff\x00\n"


def test_following_shows_what_comes_and_ctrl_c_ends_it_well(cluster: Any, tidelog: Any, stream: str) -> None:
    words = [*COMMAND, "consume", stream, "--follow"]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TIDELOG_SERVER": cluster.server},
    ) as follower:
        assert follower.stdout is not None
        try:
            for value in (b"first", b"second"):
                tidelog("produce", stream, value.decode())
                assert follower.stdout.readline() == value + b"\n"
            follower.send_signal(signal.SIGINT)
            out, err = follower.communicate(timeout=DEADLINE_SECONDS)
        finally:
            follower.kill()
    assert (out, err, follower.returncode) == (b"", b"", 0)


def test_input_that_goes_on_is_produced_as_it_comes(cluster: Any, tidelog: Any, stream: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "produce", stream], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "TIDELOG_SERVER": cluster.server},
    ) as producer:  # fmt: skip
        try:
            assert producer.stdin is not None
            producer.stdin.write(b"now\n")
            producer.stdin.flush()
            assert lines(tidelog("consume", stream, "--follow", "--max", 1)) == ["now"]
            out, _ = producer.communicate(timeout=DEADLINE_SECONDS)
        finally:
            producer.kill()
    assert out.startswith(b"1 record to")


def test_a_reader_that_leaves_ends_the_writer_quietly(
    cluster: Any, tidelog: Any, stream: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_bytes(b"x" * 100 + b"\n")
    big = tmp_path / "big"
    big.write_bytes((b"x" * 100 + b"\n") * 20_000)
    tidelog("produce", stream, "--file", big)
    with subprocess.Popen(
        [*COMMAND, "consume", stream], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TIDELOG_SERVER": cluster.server},
    ) as consumer:  # fmt: skip
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        try:
            consumer.stdout.readline()
            consumer.stdout.close()
            assert consumer.wait(DEADLINE_SECONDS) == Exit.BROKEN_PIPE
            assert consumer.stderr.read() == b""
        finally:
            consumer.kill()


def test_ctrl_c_while_waiting_for_input_ends_at_once(cluster: Any, stream: str, tidelog: Any) -> None:
    with subprocess.Popen(
        [*COMMAND, "produce", stream], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TIDELOG_SERVER": cluster.server},
    ) as producer:  # fmt: skip
        try:
            assert producer.stdin is not None
            producer.stdin.write(b"one\n")
            producer.stdin.flush()
            lines(tidelog("consume", stream, "--follow", "--max", 1))
            begun = time.monotonic()
            producer.send_signal(signal.SIGINT)
            assert producer.wait(DEADLINE_SECONDS) == Exit.INTERRUPTED
            assert time.monotonic() - begun < DEADLINE_SECONDS / 2
            assert producer.stderr is not None
            assert b"Traceback" not in producer.stderr.read()
        finally:
            producer.kill()


def test_a_file_without_values_is_refused_and_nothing_is_recorded(
    tidelog: Any, stream: str, tmp_path: Path
) -> None:
    for columns, named in (({"Value": [b"a"]}, "Value"), ({"key": [b"a"]}, "value")):
        pq.write_table(pa.table(columns), tmp_path / "wrong.parquet")
        refused = tidelog("produce", stream, "--format", "parquet", "--file", tmp_path / "wrong.parquet")
        assert (refused.code, named in refused.err) == (Exit.USAGE, True)
    assert lines(tidelog("consume", stream)) == []


def test_a_line_of_many_chunks_is_one_record(tidelog: Any, stream: str, tmp_path: Path) -> None:
    tidelog("stream", "edit", stream, "--batch-bytes-max", "4MiB")
    (tmp_path / "long").write_bytes(b"a\n" + b"x" * 3_000_000 + b"\nb")
    assert tidelog("produce", stream, "--file", tmp_path / "long").code == 0
    assert [len(line) for line in lines(tidelog("consume", stream))] == [1, 3_000_000, 1]
