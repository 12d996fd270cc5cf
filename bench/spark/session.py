"""The measured Spark session, a process of its own: `python -m bench.spark.session`.

It reads a request from each line of its standard input, does the work and prints a line of JSON. It ends with
its standard input. The first line that it prints says how long Spark took to start.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter

from pyspark import SparkContext

from bench.spark import memory_source
from bench.spark.cost import adopt_orphans
from bench.spark.request import MASTER, Request
from bench.spark.works import answer
from tidelog_spark.session import local_session


def serve(lines: Iterator[str], jars: str) -> None:
    adopt_orphans()
    began = perf_counter()
    settings = {"spark.jars": jars} if jars else {}
    with local_session("tidelog-bench", master=MASTER, settings=settings) as spark:
        gateway = SparkContext._gateway
        assert gateway is not None, "a session has started the JVM"
        jvm = gateway.proc.pid
        _say({"session_s": perf_counter() - began})
        memory_source.register(spark)
        for line in lines:
            try:
                _say(answer(spark, Request.parse(line), jvm))
            except Exception as error:
                # The session stays up: a contender may fail in one round only.
                _say({"error": f"{type(error).__name__}: {error}"})


def _say(result: dict[str, float] | dict[str, str]) -> None:
    print(json.dumps(result), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark.session", description="Does what each line of its standard input asks."
    )
    parser.add_argument("--jars", default="", help="further jars of Spark, separated by commas")
    serve(iter(sys.stdin), parser.parse_args(arguments).jars)


if __name__ == "__main__":
    main()
