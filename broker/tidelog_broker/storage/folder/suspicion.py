"""The mark of a suspect log (DESIGN 4, 2b; R6): recovery may have cut what was acknowledged.

Torn and rotten look alike where recovery cuts, so a log that lost a valid batch behind
an invalid one stays suspect over restarts, until it was compared with its peers or an
operator accepts it by removing the mark while the broker is stopped. So does the log of a
`page-cache` stream after a power loss. The file says in words what was cut, or why.
"""

from __future__ import annotations

from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import replace_file

FILE_NAME = "suspect"


def write_suspicion(files: Files, folder: str, text: str) -> None:
    """Durable when it returns, and so before anything is cut."""
    replace_file(files, f"{folder}/{FILE_NAME}", f"{text}\n".encode())


def clear_suspicion(files: Files, folder: str) -> None:
    """Durable when it returns."""
    if files.exists(f"{folder}/{FILE_NAME}"):
        files.remove(f"{folder}/{FILE_NAME}")
        files.sync_dir(folder)
