"""Streams and brokers by the command line."""

from __future__ import annotations

import json
from typing import Any

from tidelog.cli.errors import Exit


def found(answer: Any) -> Any:
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def test_a_stream_is_created_with_what_is_said_and_defaults_for_the_rest(tidelog: Any) -> None:
    stream = found(
        tidelog(
            "stream",
            "create",
            "created",
            "--subject",
            "created.>",
            "--partitions",
            2,
            "--retention-bytes",
            "10GiB",
            "--segment-bytes",
            "64MiB",
            "--dedupe-window",
            "5m",
            "--durability",
            "page-cache",
            "--nats-ack",
            "never",
            "--label",
            "team=shop",
            "-o",
            "json",
        )
    )

    config = stream["config"]
    assert config["subject"] == "created.>"
    assert config["retention"] == {"age_ms": 604_800_000, "bytes": 10 << 30, "messages": None}
    assert (config["segment_bytes"], config["dedupe_window_ms"]) == (64 << 20, 300_000)
    assert (config["durability"], config["nats_ack"]) == ("page-cache", "never")
    assert len(stream["partitions"]) == 2
    assert stream["labels"] == {"team": "shop"}


def test_creating_twice_the_same_is_fine(tidelog: Any) -> None:
    first = found(tidelog("stream", "create", "twice", "--partitions", 2, "-o", "json"))
    again = found(tidelog("stream", "create", "twice", "--partitions", 2, "-o", "json"))

    assert first["stream_id"] == again["stream_id"]
    assert (first["existed"], again["existed"]) == (False, True)


def test_create_says_whether_the_stream_was_there_already(tidelog: Any) -> None:
    first = tidelog("stream", "create", "said")
    again = tidelog("stream", "create", "said")

    assert first.out.startswith("created stream said\n")
    assert again.out == "stream said exists already with these settings; nothing was changed\n"


def test_a_minimum_above_the_copies_is_explained(tidelog: Any) -> None:
    answer = tidelog("stream", "create", "careful", "--min-insync-replicas", 2)

    assert answer.code == 0
    assert "copies        1 (at least 1 in sync)" in answer.out
    assert answer.err == (
        "tidelog: note: careful keeps 1 copy of each partition, so a record is acknowledged "
        "when 1 copy holds it, not 2\n"
    )


def test_a_minimum_above_a_given_number_of_copies_is_refused(tidelog: Any) -> None:
    answer = tidelog("stream", "create", "impossible", "--min-insync-replicas", 2, "--replication-factor", 1)

    assert answer.code == Exit.USAGE
    assert "min_insync_replicas is 2, more than replication_factor (1)" in answer.err


def test_validate_only_changes_nothing(tidelog: Any) -> None:
    assert tidelog("stream", "create", "not-made", "--validate-only").code == 0

    assert found(tidelog("stream", "list", "not-made", "-o", "json")) == []


def test_an_edit_of_one_bound_keeps_the_others(tidelog: Any) -> None:
    tidelog("stream", "create", "edited", "--retention-age", "1d", "--retention-messages", "1000")

    config = found(
        tidelog(
            "stream",
            "edit",
            "edited",
            "--retention-bytes",
            "1MiB",
            "--retention-messages",
            "unlimited",
            "-o",
            "json",
        )
    )["config"]

    assert config["retention"] == {"age_ms": 86_400_000, "bytes": 1 << 20, "messages": None}


def test_a_subject_can_be_given_and_taken_away(tidelog: Any) -> None:
    tidelog("stream", "create", "subjective")

    assert (
        found(tidelog("stream", "edit", "subjective", "--subject", "a.*", "-o", "json"))["config"]["subject"]
        == "a.*"
    )
    assert (
        found(tidelog("stream", "edit", "subjective", "--subject", "", "-o", "json"))["config"]["subject"]
        == ""
    )


def test_list_shows_those_whose_whole_name_matches(tidelog: Any) -> None:
    for name in ("listed-a", "listed-b", "relisted-a"):
        tidelog("stream", "create", name)

    names = [stream["name"] for stream in found(tidelog("stream", "list", "listed-.*", "-o", "json"))]

    assert names == ["listed-a", "listed-b"]
    table = tidelog("stream", "list", "listed-.*").out
    assert "listed-b" in table
    assert "retention" in table


def test_describe_counts_the_records(tidelog: Any, stream: str) -> None:
    tidelog("produce", stream, "a", "b")

    partition = found(tidelog("stream", "describe", stream, "-o", "json"))["partitions"][0]

    assert (partition["log_start_offset"], partition["high_watermark"]) == (0, 2)
    assert stream in tidelog("stream", "describe", stream).out


def test_a_deleted_stream_is_gone(tidelog: Any, stream: str) -> None:
    assert found(tidelog("stream", "delete", stream, "--yes", "-o", "json"))["deleted"] is True

    assert found(tidelog("stream", "list", stream, "-o", "json")) == []


def test_the_cluster_says_who_is_in_it(tidelog: Any, cluster: Any) -> None:
    answer = found(tidelog("cluster", "describe", "-o", "json"))

    assert [list(broker["listeners"].values()) for broker in answer["brokers"]] == [[cluster.server]]
    assert cluster.server in tidelog("cluster", "describe").out


def test_replicas_show_offsets_and_sizes(tidelog: Any, stream: str) -> None:
    tidelog("produce", stream, "a")

    (replica,) = found(tidelog("cluster", "replicas", stream, "-o", "json"))

    assert (replica["leader"], replica["high_watermark"], replica["segments"]) == (True, 1, 1)
    assert f"{stream}/0" in tidelog("cluster", "replicas").out
