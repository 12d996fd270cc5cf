"""Compares the logs with the messages that were sent: the same values, subjects and ids, no id twice (N3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from simulator.checks import require
from simulator.cluster import Cluster
from simulator.nats.plan import Kind
from simulator.nats.publishers import SimPublisher
from simulator.watch.batches import LAST_READER, batches_of
from tidelog.history import History, runs_of

MESSAGE_ID = "Nats-Msg-Id"


def judge_content(cluster: Cluster, publishers: Sequence[SimPublisher]) -> None:
    """Raises Violated for a record that differs from the message that was sent."""
    by_name = {publisher.name: publisher for publisher in publishers}
    for key in cluster.keys:
        leader = cluster.leader_of(key)
        assert leader is not None
        for batch in batches_of(leader.replicas[key], key):
            rows = batch.columns.to_pylist()
            for at, producer, first, count in runs_of(batch.columns.column("value")):
                publisher = by_name.get(producer)
                if publisher is not None:
                    for index in range(count):
                        _compare(publisher, first + index, batch.base_offset + at + index, rows[at + index])


def _compare(publisher: SimPublisher, number: int, offset: int, row: dict[str, Any]) -> None:
    sent = publisher.sent.get(number)
    require(
        sent is not None,
        "N3",
        f"offset {offset} has number {number} of publisher {publisher.name}, which the publisher never sent",
    )
    assert sent is not None
    ids = [header["value"] for header in row.get("headers") or () if header["key"] == MESSAGE_ID]
    wanted = [] if sent.message_id is None else [sent.message_id]
    same = (row["value"], row["subject"].encode(), ids) == (sent.value, sent.subject, wanted)
    require(same, "N3", f"offset {offset} has {row}, and publisher {publisher.name} sent {sent}")
    publisher._checks.mark("N3 as it was sent")


def judge_ids(cluster: Cluster, history: History, publishers: Sequence[SimPublisher]) -> None:
    """Raises Violated for a message id that was recorded twice.

    A replica knows the ids of the records in its log. It may record an id again after the first record was
    deleted (N3).
    """
    places: dict[tuple[int, int], set[int]] = {}
    named = {publisher.name: publisher for publisher in publishers if publisher.kind is Kind.NAMED}
    for read in history.reads:
        publisher = named.get(read.producer)
        if publisher is None or (
            read.reader != LAST_READER and cluster.checks.truth(publisher.target.key).kept_from
        ):
            # Records that an unclean election lost are sent again.
            continue
        for index in range(read.records):
            places.setdefault((read.producer, read.first + index), set()).add(read.offset + index)
    for (name, number), offsets in places.items():
        truth = cluster.checks.truth(named[name].target.key)
        for first, second in pairwise(sorted(offsets)):
            began = [truth.began[at] for at, link in truth.batches.items() if link.base <= second < link.next]
            require(
                max(began, default=0) > first,
                "N3",
                f"number {number} of publisher {name} was recorded at offset {first} and again at {second}, "
                f"when the log began at {began}",
            )
            cluster.checks.mark("N3 forgotten with its record")
