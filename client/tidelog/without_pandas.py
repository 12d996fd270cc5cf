"""Our programs never need pandas, and must not import it: pyarrow would, without being asked.

The first time that pyarrow makes an array of Python values it looks whether pandas is installed, by
importing it: a third of a second of processor time and some 55 MB (pyarrow 26, pandas 2.3). In a broker
that is the first round which it leads, on its event loop, which is to say in the middle of a failover; of
the command line it is a third of the time that a command takes. Programs of others that use the library
have pandas as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

NAME: Final = "pandas"


class _NotHere(MetaPathFinder):
    """Answers that there is no pandas, before anybody looks for it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == NAME:
            raise ModuleNotFoundError(f"{NAME} is left out of this process", name=NAME)
        return None


def leave_pandas_out() -> None:
    """From here on `import pandas` fails in this process, unless it is imported already."""
    sys.meta_path.insert(0, _NotHere())
