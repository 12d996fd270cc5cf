"""The command line of the jobs: ``python -m tidelog_spark.jobs --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from tidelog_spark.jobs.aggregating.config import Aggregation
from tidelog_spark.jobs.config import Job
from tidelog_spark.jobs.loading import load
from tidelog_spark.jobs.reporting import Report, say
from tidelog_spark.jobs.running import exit_code_of, run_attempts
from tidelog_spark.jobs.stopping import Stop

INGEST_EXAMPLES = """\
examples:
  # a file describes the job
  python -m tidelog_spark.jobs ingest --config job.yaml --report report.json

  # the same without a file: each key of the configuration by --set
  python -m tidelog_spark.jobs ingest --set servers=localhost:9210 --set source.streams=[orders] \\
      --set sink.parquet.path=lake/orders --set sink.parquet.partitionBy.time=day \\
      --set checkpoint=lake/_checkpoints/orders
"""

AGGREGATE_EXAMPLES = """\
example:
  python -m tidelog_spark.jobs aggregate --set servers=localhost:9210 --set source.streams=[orders] \\
      --set value.format=json --set value.schema='customer string, amount decimal(9,2)' \\
      --set groupBy=[customer] --set window.size=1h --set window.watermark=10m \\
      --set aggregates.orders='count(*)' --set aggregates.total='sum(amount)' \\
      --set sink.stream=totals --set checkpoint=checkpoints/totals
"""

EXIT_CODES = """
exit codes:
  0    done
  1    failed, and another run would fail too: records were lost, or the target belongs to another checkpoint
  2    the configuration or the arguments are wrong
  75   a bad moment, after several attempts: brokers, catalog or store were not reachable. Run the job again
  130  stopped by SIGINT
  143  stopped by SIGTERM

docs/spark.md describes all keys of the configuration.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    return int(exit_code_of(lambda stop: _work(given, stop), given.termination_log))


def _work(given: argparse.Namespace, stop: Stop) -> None:
    job = load(given.kind, given.config, given.set)
    if given.check:
        say("checked")
        return
    # Only now, because Spark takes a second to import, and a faulty configuration does not need it.
    from tidelog_spark.jobs.sessions import session

    parts = given.parts()
    report = Report(given.report, counts=dict.fromkeys(parts.COUNTS, 0))
    report.save()
    try:
        with session(job, parts.NAME, given.master) as spark, stop.listening():
            run_attempts(lambda: parts.Attempt(spark, job, report, stop), report, wait=stop.wait)
    finally:
        report.finish()
    say("done", **report.document())


def _ingest() -> ModuleType:
    from tidelog_spark.jobs import ingest

    return ingest


def _aggregate() -> ModuleType:
    from tidelog_spark.jobs.aggregating import attempt

    return attempt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tidelog_spark.jobs", description="The Spark jobs of Tidelog."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    ingest = commands.add_parser(
        "ingest",
        help="write streams to Parquet or Iceberg, each record once",
        description="Writes streams to a folder of Parquet files or to an Iceberg table, each record once.",
        epilog=INGEST_EXAMPLES + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ingest.set_defaults(kind=Job, parts=_ingest)
    aggregate = commands.add_parser(
        "aggregate",
        help="write aggregates of streams to a stream, each window once",
        description="Groups the records of streams by columns and by windows of time, and writes the "
        "aggregates of each closed window to a stream, once.",
        epilog=AGGREGATE_EXAMPLES + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    aggregate.set_defaults(kind=Aggregation, parts=_aggregate)
    for command in (ingest, aggregate):
        _add_arguments(command)
    return parser


def _add_arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--config", type=Path, metavar="FILE", help="the job, in YAML or JSON")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="one key of the job, over the file's")
    add("--check", action="store_true", help="check the configuration and end, without Spark")
    add("--report", type=Path, metavar="FILE", help="rows, offsets and lag as JSON, after each batch")
    add("--termination-log", type=Path, metavar="FILE", help="the reason of a failure goes to this file, too")
    add("--master", help="Spark master if spark-submit does not run the job (default: local[*])")


if __name__ == "__main__":
    sys.exit(main())
