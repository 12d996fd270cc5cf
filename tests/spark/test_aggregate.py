"""The aggregate job in a session: closed windows become records of a stream, each once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.trio import Trio
from tidelog import blocking
from tidelog.errors import InvalidRequest, StreamNotFound, Unavailable
from tidelog_spark.jobs.aggregating.attempt import Attempt
from tidelog_spark.jobs.aggregating.config import Aggregation
from tidelog_spark.jobs.aggregating.results import Results
from tidelog_spark.jobs.loading import from_document
from tidelog_spark.jobs.moments import passes
from tidelog_spark.jobs.reporting import Report
from tidelog_spark.jobs.stopping import Stop
from tidelog_spark.lake.parquet import ParquetLake

pytestmark = pytest.mark.timeout(300)

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
VALUE = {"format": "json", "schema": "customer string, amount decimal(9,2), weight double, placed timestamp"}

MINUTE = timedelta(minutes=1)
CLOSING = ("z", 1000.0, 3_000.0)
"""An order that closes all windows of the orders before it."""

Order = tuple[str, float, float]
"""(customer, amount, minutes after `BEGIN`)."""

Run = Callable[..., Report]


@pytest.fixture
def run(spark: SparkSession, brokers: Trio, tmp_path: Path) -> Run:
    """Runs a job to its end in the session; raises what a batch raised, or else Spark's error."""

    def aggregate(source: str, target: str, checkpoint: str = "checkpoint", **more: Any) -> Report:
        job = from_document(
            Aggregation,
            {
                "servers": brokers.address,
                "source": more.pop("from_", None)
                or {"streams": [source], "options": more.pop("options", {})},
                "value": VALUE,
                "groupBy": ["customer"],
                "window": {"size": "10m", "time": "placed", "watermark": "5m"},
                "aggregates": {"orders": "count(*)", "total": "sum(amount)"},
                "sink": {"stream": target},
                "checkpoint": str(tmp_path / checkpoint),
                **more,
            },
        )
        report = Report(tmp_path / "report.json")
        attempt = Attempt(spark, job, report, Stop())
        try:
            attempt.run()
        except Exception as error:
            raise attempt.failure or error from None
        return report

    return aggregate


def send(log: blocking.Client, stream: str, *orders: Order) -> None:
    with log.producer(stream) as producer:
        for customer, amount, minutes in orders:
            placed = (BEGIN + minutes * MINUTE).isoformat()
            value = {"customer": customer, "amount": amount, "weight": amount / 7, "placed": placed}
            producer.send(json.dumps(value).encode(), key=customer.encode())


def results(log: blocking.Client, stream: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in texts(log, stream)]


def texts(log: blocking.Client, stream: str) -> list[str]:
    return [(record.value or b"").decode() for record in log.reader(stream, follow=False)]


def windows(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((row["customer"], row["window_start"][11:16]) for row in found)


def twin(orders: list[Order], size: int, slide: int, closed: float) -> dict[tuple[str, int], list[Order]]:
    """The orders of each window that ends by the minute `closed`: a record is compared with each window."""
    found: dict[tuple[str, int], list[Order]] = {}
    for customer, amount, minutes in orders:
        for start in range(-size, int(closed) - size + 1):
            if start % slide == 0 and start <= minutes < start + size:
                found.setdefault((customer, start), []).append((customer, amount, minutes))
    return found


@pytest.mark.long
def test_results_are_those_of_a_dumb_twin_in_many_batches(
    log: blocking.Client, stream: Callable[..., str], run: Run
) -> None:
    source, target = stream(2), stream(3)
    chance = random.Random(7)
    orders: list[Order] = [
        (chance.choice("abc"), chance.randrange(10_000) / 100, number + chance.uniform(-4, 4))
        for number in range(60)
    ]
    send(log, source, *orders, CLOSING)
    report = run(
        source,
        target,
        options={"maxOffsetsPerTrigger": "9"},
        where="amount >= 10",
        window={"size": "10m", "slide": "5m", "time": "placed", "watermark": "1h"},
        aggregates={
            "orders": "count(*)",
            "total": "sum(amount)",
            "mean": "avg(weight)",
            "range": "max(amount) - min(amount)",
            "customers": "approx_count_distinct(customer)",
        },
    )
    assert report.batches > 7
    expected = twin([order for order in orders if order[1] >= 10], 10, 5, closed=1000)
    found = results(log, target)
    assert len(found) == len(expected) == report.rows
    for row in found:
        start = datetime.fromisoformat(row["window_start"])
        assert datetime.fromisoformat(row["window_end"]) - start == timedelta(minutes=10)
        amounts = [amount for _, amount, _ in expected[row["customer"], (start - BEGIN) // MINUTE]]
        assert row["orders"] == len(amounts)
        assert row["total"] == pytest.approx(sum(amounts))
        assert row["mean"] == pytest.approx(sum(amounts) / 7 / len(amounts))
        assert row["range"] == pytest.approx(max(amounts) - min(amounts))
        assert row["customers"] == 1
    for customer in "abc":
        starts = [row["window_start"] for row in found if row["customer"] == customer]
        assert starts == sorted(starts), "one partition has the windows of a key in their order"


def test_a_window_is_written_once_after_the_watermark_has_passed_it(
    log: blocking.Client, stream: Callable[..., str], run: Run
) -> None:
    source, target = stream(2), stream(2)
    send(log, source, ("a", 1, 0), ("a", 2.5, 9), ("b", 4, 3), ("a", 8, 12))
    assert run(source, target).rows == 0
    send(log, source, ("b", 16, 14), ("c", 1, 30))
    assert run(source, target).rows == 4
    assert windows(results(log, target)) == [("a", "12:00"), ("a", "12:10"), ("b", "12:00"), ("b", "12:10")]
    assert run(source, target).rows == 0
    record = next(record for record in log.reader(target, follow=False) if record.key == b"a")
    assert record.value == (
        b'{"window_start":"2026-03-01T12:00:00.000000Z","window_end":"2026-03-01T12:10:00.000000Z",'
        b'"customer":"a","orders":2,"total":3.50}'
    )
    assert record.timestamp_us == round((BEGIN + 10 * MINUTE).timestamp()) * 1_000_000 - 1


@pytest.mark.long
def test_records_of_closed_windows_are_dropped_and_their_groups_are_counted(
    log: blocking.Client, stream: Callable[..., str], run: Run
) -> None:
    source, target = stream(), stream()
    send(log, source, ("a", 1, 0), ("a", 1, 30))
    assert run(source, target).rows == 1
    # The watermark is at minute 25.
    send(log, source, ("a", 100, 9), ("a", 100, 8), ("b", 100, 9), ("c", 4, 26), ("a", 1, 90))
    report = run(source, target)
    assert report.counts["lateGroups"] == 2
    assert [(row["customer"], row["total"]) for row in results(log, target)][:1] == [("a", 1)]
    assert windows(results(log, target)) == [("a", "12:00"), ("a", "12:30"), ("c", "12:20")]


@pytest.mark.long
def test_windows_of_the_future_are_written_with_the_time_of_their_batch(
    log: blocking.Client, stream: Callable[..., str], run: Run
) -> None:
    source, target = stream(), stream()
    ahead = (datetime.now(UTC) - BEGIN) / MINUTE + 3 * 24 * 60
    send(log, source, *(("a", 1, ahead + minutes) for minutes in (40, 20, 0, -ahead, 100)))
    assert run(source, target).rows == 4
    assert (found := results(log, target)) == sorted(found, key=lambda row: row["window_start"])
    first, *others = [record.timestamp_us / 1e6 for record in log.reader(target, follow=False)]
    assert first == pytest.approx((BEGIN + 10 * MINUTE).timestamp(), abs=1)
    assert others == pytest.approx([datetime.now(UTC).timestamp()] * 3, abs=3_000)


@pytest.mark.long
def test_columns_of_the_record_and_expressions_make_groups_and_keys(
    log: blocking.Client, stream: Callable[..., str], run: Run
) -> None:
    source, targets = stream(), [stream() for _ in range(3)]
    with log.producer(source) as producer:
        for number in range(6):
            at = BEGIN + timedelta(minutes=4 * number) if number < 5 else BEGIN + timedelta(days=1)
            producer.send(b"v", key=b"\xff%d" % (number % 2), subject=f"orders.eu-{number % 2}", timestamp=at)
    raw = {"value": None, "window": {"size": "10m", "watermark": "0s"}, "aggregates": {"n": "count(value)"}}
    groupings = [["key"], ["split(subject, '[.]')[1] as region", "partition"], []]
    for number, (groups, target) in enumerate(zip(groupings, targets, strict=True)):
        run(source, target, checkpoint=f"checkpoint-{number}", groupBy=groups, **raw)
    by_key, by_both, by_none = (
        [record.key for record in log.reader(target, follow=False)] for target in targets
    )
    assert sorted(key or b"" for key in by_key) == [b"\xff0", b"\xff0", b"\xff1", b"\xff1"]
    assert set(by_both) == {b'{"region":"eu-%d","partition":0}' % number for number in range(2)}
    assert by_none == [None, None]
    assert [row["n"] for row in results(log, targets[2])] == [3, 2]


class Crash(Exception):
    """The process would end here."""


AT = 1
"""The batch that crashes. It has records, and it closes windows."""


@pytest.mark.long
@pytest.mark.parametrize("step", ["computed", "decided", "sent"])
def test_a_batch_that_runs_again_writes_what_its_first_attempt_has_decided(
    step: str,
    log: blocking.Client,
    stream: Callable[..., str],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = stream(), stream(2)
    orders = [(name, 1 if minute % 10 else 2, minute) for minute in range(40) for name in "abcde"]
    send(log, source, CLOSING, *orders)
    # No two attempts count the same records, so a second attempt computes other results. Each counts the
    # first order of each window, whose amount is 2, so that no window is empty.
    settings = {"options": {"maxOffsetsPerTrigger": "101"}, "where": "amount > 1 or rand() < 0.5"}
    decided: list[str] = []

    def crash_when_computed(lake: ParquetLake, batch: int, *arguments: Any) -> Any:
        if batch == AT:
            raise Crash
        return decide(lake, batch, *arguments)

    def crash_when_decided(results: Results, session: SparkSession, batch: int) -> DataFrame | None:
        rows = kept(results, session, batch)
        if batch == AT:
            assert rows is not None
            decided.extend(sorted(row.value for row in rows.collect()))
            raise Crash
        return rows

    def crash_when_sent(attempt: Attempt, frame: DataFrame, batch: int) -> Any:
        outcome = aggregate(attempt, frame, batch)
        if batch == AT:
            decided.extend(sorted(texts(log, target)))
            raise Crash
        return outcome

    decide, kept, aggregate = ParquetLake.decide, Results.kept, Attempt._aggregate
    with monkeypatch.context() as broken:
        match step:
            case "computed":
                broken.setattr(ParquetLake, "decide", crash_when_computed)
            case "decided":
                broken.setattr(Results, "kept", crash_when_decided)
            case _:
                broken.setattr(Attempt, "_aggregate", crash_when_sent)
        with pytest.raises(Crash):
            run(source, target, **settings)
    assert bool(results(log, target)) == (step == "sent")
    run(source, target, **settings)
    found = results(log, target)
    assert len(windows(found)) == len(set(windows(found))) == 20
    assert 70 < sum(row["orders"] for row in found) < 150
    if decided:
        assert sorted(texts(log, target)) == decided


@pytest.mark.long
def test_a_changed_number_of_shuffle_partitions_changes_no_result(
    log: blocking.Client, stream: Callable[..., str], run: Run, spark: SparkSession
) -> None:
    source, target = stream(2), stream(2)
    hour = {"size": "1h", "time": "placed", "watermark": "0s"}
    send(log, source, *((name, 1, minute) for minute in range(20) for name in "abc"))
    run(source, target, window=hour)
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        send(log, source, *((name, 1, minute) for minute in range(20) for name in "abc"), CLOSING)
        run(source, target, window=hour)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    found = [(row["customer"], row["orders"], row["total"]) for row in results(log, target)]
    assert sorted(found) == [(name, 40, 40) for name in "abc"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"where": "amount >"}, "where is 'amount >': "),
        ({"where": "price > 1"}, "where is 'price > 1': .*price"),
        ({"groupBy": ["customer", "shop"]}, "groupBy.1 is 'shop': "),
        ({"groupBy": ["*"]}, r"groupBy.0 is '\*', which is [0-9]+ columns"),
        ({"groupBy": ["customer as orders"]}, "two fields 'orders'"),
        ({"groupBy": ["customer as window_end"]}, "two fields 'window_end'"),
        ({"aggregates": {"x": "amount"}}, "aggregates.x is 'amount': "),
        ({"aggregates": {"x": "sum(price)"}}, r"aggregates.x is 'sum\(price\)': "),
        ({"aggregates": {"x": "count(distinct amount)"}}, "cannot compute these aggregates of a stream: "),
        ({"window": {"size": "1m", "watermark": "0s", "time": "amount"}}, "'amount', which is decimal"),
        ({"from_": {"pattern": "spark-.*"}}, "sink.stream is 'spark-[0-9]+', which source.pattern matches"),
    ],
)  # fmt: skip
def test_what_spark_does_not_take_is_a_bad_configuration(
    more: dict[str, Any], sentence: str, stream: Callable[..., str], run: Run
) -> None:
    with pytest.raises(InvalidRequest, match=sentence) as refused:
        run(stream(), stream(), **more)
    assert "\n" not in str(refused.value)


@pytest.mark.long
def test_a_changed_aggregate_does_not_go_on_with_the_open_windows(
    log: blocking.Client, stream: Callable[..., str], run: Run
) -> None:
    source, target = stream(), stream()
    send(log, source, ("a", 1, 0))
    run(source, target)
    other = {"size": "20m", "time": "placed", "watermark": "5m"}
    with pytest.raises(InvalidRequest, match=r"window\.size is 1200.0, .* made with 600.0"):
        run(source, target, window=other)
    with pytest.raises(InvalidRequest, match=r"aggregates is .* new checkpoint"):
        run(source, target, aggregates={"orders": "count(*)", "total": "sum(amount * 2)"})
    run(source, target, window=other, checkpoint="new")


def test_a_cluster_that_is_away_is_a_bad_moment_and_a_missing_stream_is_none(
    stream: Callable[..., str], run: Run
) -> None:
    with pytest.raises(StreamNotFound, match="nowhere") as missing:
        run(stream(), "nowhere")
    assert not passes(missing.value)
    with pytest.raises(Unavailable) as away:
        run(stream(), "x", servers="127.0.0.1:9")
    assert passes(away.value)
