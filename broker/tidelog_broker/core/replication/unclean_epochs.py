"""R1, R6: which entry of a new leader's history says that what was committed may be gone.

The image keeps the newest epoch that began uncleanly. Whoever leads and has no entry of that
epoch or a later one never led in it, or not for long enough for the entry to come to its
disk; its followers must learn from its history all the same why they may cut.
"""

from __future__ import annotations

from tidelog_broker.core.replication.log_view import LogView


def epoch_to_mark(log: LogView, leader_epoch: int, unclean_epoch: int) -> int | None:
    """The epoch that a new leader begins, marked unclean, before anything else; None: its history says it.

    `unclean_epoch` is the image's, 0: none began so.
    """
    latest = log.epochs.latest
    if unclean_epoch <= (latest or 0):
        return None
    # A history without entries is one of an emptied log: others may hold records of epochs
    # between the two, which ended before this one began.
    return leader_epoch if latest is None else unclean_epoch
