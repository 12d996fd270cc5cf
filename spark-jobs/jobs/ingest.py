"""Writes streams to Parquet or Iceberg: `python -m tidelog_spark.jobs ingest`, for spark-submit.

spark-submit ingest.py --config job.yaml
"""

from __future__ import annotations

import sys

from tidelog_spark.jobs.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["ingest", *sys.argv[1:]]))
