"""Writes aggregates of streams to a stream: `python -m tidelog_spark.jobs aggregate`, for spark-submit.

spark-submit aggregate.py --config job.yaml
"""

from __future__ import annotations

import sys

from tidelog_spark.jobs.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["aggregate", *sys.argv[1:]]))
