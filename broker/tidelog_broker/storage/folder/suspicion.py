"""The mark of a suspect log (DESIGN 4, 2b; R6): recovery may have cut acknowledged records.

Where recovery cuts, a torn batch and a rotten batch look alike. So a log that lost a valid batch
behind an invalid batch is suspect. It stays suspect over restarts, until it is compared with its
peers, or until an administrator accepts it by removing the mark while the broker is stopped. The same
holds for the log of a `page-cache` stream after a power loss. The file says in plain text what was
cut, or why the log is suspect.
"""

from __future__ import annotations

from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import replace_file

FILE_NAME = "suspect"


def write_suspicion(files: Files, folder: str, text: str) -> None:
    """Writes the mark; durable when it returns, and so before recovery cuts anything."""
    replace_file(files, f"{folder}/{FILE_NAME}", f"{text}\n".encode())


def clear_suspicion(files: Files, folder: str) -> None:
    """Removes the mark; durable when it returns."""
    if files.exists(f"{folder}/{FILE_NAME}"):
        files.remove(f"{folder}/{FILE_NAME}")
        files.sync_dir(folder)
