"""The one useful sentence in the pages of text that Spark makes of an error.

An error that a data source raises in Python comes back as a Java exception whose text has a Python
traceback. The message for the user is the last line of that traceback.
"""

from __future__ import annotations

import re

from tidelog.errors import TidelogError

_OURS = re.compile(r"^(?:tidelog|tidelog_spark)\.[\w.]+: (.+)$", re.MULTILINE)

_JAVA = re.compile(r"^An error occurred while calling .*\n: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
"""An exception of Java as Py4J writes it: the call, then the class with the message."""


def sentence_of(error: BaseException) -> str:
    """The message of the error, for the user."""
    if isinstance(error, TidelogError):
        return error.message
    found = _OURS.findall(str(error))
    if found:
        return str(found[-1]).strip()
    java = _JAVA.match(str(error))
    if java is not None:
        return java[1].strip()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
