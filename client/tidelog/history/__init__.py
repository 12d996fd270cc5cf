"""Whether a log kept its promises: what was written and read against it, and what that proves.

A test load numbers its records: producer and number stand in each value. Producers note what they
were told, readers what they saw, both as *runs* (consecutive numbers at consecutive offsets), so that a
history of a hundred million records fits into memory. `check` then looks for anomalies, in the
manner of Jepsen's kafka workload: records that are lost, doubled, out of order, at another offset
than was said, there although they were refused, or never seen.

What belongs here: the words of a history, its judgement, and the comparison of replicas, without I/O.
Who makes load and reads a cluster uses it (`tidelog verify`, the project's chaos runs and simulator).
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
