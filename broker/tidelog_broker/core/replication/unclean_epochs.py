"""R1, R6: which entry of a new leader's history says that committed records may be lost.

The image keeps the newest epoch that began uncleanly. A leader without an entry of that
epoch or a later one never led in it, or its entry did not reach the disk. Its followers must
learn from its history nevertheless why they may truncate.

The entry names the unclean epoch itself, also in a log without a history. An entry of a later,
clean epoch would allow a follower to drop records that were committed between the two. In an emptied log
the unclean epoch begins and ends at the log start, whatever other logs hold of it. So it says
why a follower may truncate, and not where (`History.end_of`).
"""

from __future__ import annotations

from tidelog_broker.core.replication.log_view import LogView


def epoch_to_mark(log: LogView, unclean_epoch: int) -> int | None:
    """The epoch that a new leader must begin, marked unclean, before anything else.

    None: its history has the mark already. `unclean_epoch` is the image's; 0: no epoch began uncleanly.
    """
    return unclean_epoch if unclean_epoch > (log.epochs.latest or 0) else None
