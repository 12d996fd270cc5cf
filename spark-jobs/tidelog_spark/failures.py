"""One sentence out of the pages that Spark makes of an error.

What a data source raises in Python comes back as a Java exception with a Python traceback
as text in it; the sentence that was meant for the user is its last line.
"""

from __future__ import annotations

import re

from tidelog.errors import TidelogError

_OURS = re.compile(r"^(?:tidelog|tidelog_spark)\.[\w.]+: (.+)$", re.MULTILINE)


def sentence_of(error: BaseException) -> str:
    """What went wrong, for people."""
    if isinstance(error, TidelogError):
        return error.message
    found = _OURS.findall(str(error))
    if found:
        return str(found[-1]).strip()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
