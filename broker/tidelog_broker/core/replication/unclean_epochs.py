"""R1, R6: which entry of a new leader's history says that what was committed may be gone.

The image keeps the newest epoch that began uncleanly. Whoever leads and has no entry of that
epoch or a later one never led in it, or not for long enough for the entry to come to its
disk; its followers must learn from its history all the same why they may cut.

The entry names the unclean epoch itself, in a log without a history too. An entry of a later,
clean epoch would allow a follower to drop what was committed between the two. In an emptied log
the unclean epoch then begins and ends at the log start, whatever others hold of it, so it says
why a follower may cut and not where (`History.end_of`).
"""

from __future__ import annotations

from tidelog_broker.core.replication.log_view import LogView


def epoch_to_mark(log: LogView, unclean_epoch: int) -> int | None:
    """The epoch that a new leader begins, marked unclean, before anything else; None: its history says it.

    `unclean_epoch` is the image's, 0: none began so.
    """
    return unclean_epoch if unclean_epoch > (log.epochs.latest or 0) else None
