"""Keeps pyarrow from importing pandas in Tidelog's own programs, which never need it.

When pyarrow first makes an array from Python values, it imports pandas to see whether it is installed. That
takes a third of a second of CPU time and about 55 MB (pyarrow 26, pandas 2.3). In a broker it would happen
in the first round that it leads, on its event loop, in the middle of a failover; for the command line it is
a third of the time of a command. Applications that use the library import pandas as usual.
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
    """An import hook that says that pandas does not exist."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == NAME:
            raise ModuleNotFoundError(f"{NAME} is left out of this process", name=NAME)
        return None


def leave_pandas_out() -> None:
    """Makes `import pandas` fail in this process, unless it is imported already."""
    sys.meta_path.insert(0, _NotHere())
