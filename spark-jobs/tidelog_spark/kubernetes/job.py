"""The program that spark-submit runs in the driver's pod: `python -m tidelog_spark.jobs`, as a file."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("tidelog_spark.jobs", run_name="__main__", alter_sys=True)
