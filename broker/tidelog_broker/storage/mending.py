"""What a message advises when a data directory is damaged: one sentence for all of them.

A copy of the directory is never the advice. The other brokers count on what this one acknowledged since
the copy was made, and a broker that forgot it would be counted as if it had it (R19).
"""

from __future__ import annotations

MEND = (
    "if its cluster has other brokers, empty the data directory and start the broker again: they refill it. "
    "Do not put a copy of it back: what was acknowledged since would be lost. If the broker is alone, see "
    '"A data directory is damaged" in docs/operations.md'
)
