"""The check of a log's promises: what producers and readers saw, and the anomalies in it.

A test load numbers its records: each value has its producer and number. Producers note the answers that
they got, readers the records that they saw, both as *runs* (consecutive numbers at consecutive offsets), so
a history of a hundred million records fits into memory. `check` then looks for the anomalies of Jepsen's
kafka workload: records that are lost, duplicated, out of order, at another offset than acknowledged, in the
log although they were refused, or never seen.

What belongs here: the operations of a history, their check, and the comparison of replicas, without I/O.

- `operations`  writes and reads; `values` are the numbered values of a load
- `check`       finds the anomalies; `content` is the log that the reads show
- `replicas`    compares the copies of a partition
- `transcript`  a history as text

`tidelog verify`, the chaos runs and the simulator make the load and use it.
"""

from tidelog.history.check import Report, check
from tidelog.history.operations import Anomaly, History, Outcome, Producer, Read, Write
from tidelog.history.transcript import TranscriptInvalid, lines_of, parse
from tidelog.history.values import STAMP_BYTES, runs_of, stamp

__all__ = [
    "STAMP_BYTES",
    "Anomaly",
    "History",
    "Outcome",
    "Producer",
    "Read",
    "Report",
    "TranscriptInvalid",
    "Write",
    "check",
    "lines_of",
    "parse",
    "runs_of",
    "stamp",
]
