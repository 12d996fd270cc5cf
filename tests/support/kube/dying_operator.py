"""An operator that is killed after N actions: ``python -m support.kube.dying_operator N run …``.

The kill comes after the action and before the operator sees its result: it reports, releases and remembers
nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from tidelog_operator.__main__ import main
from tidelog_operator.apply import Applier


def die_after(count: int) -> None:
    do, done = Applier._execute, 0
    before = os.environ.get("TIDELOG_TESTS_LAST_ACTION", "")

    async def dying(self: Applier, action: Any, one: Any) -> bool:
        nonlocal done
        changed = await do(self, action, one)
        # The next operator repeats the action, because nothing recorded it; that counts only once.
        done += changed and repr(action) != before
        if done >= count:
            # One line, so that a test knows which action was the last.
            sys.stderr.write(f"killed after {type(action).__name__}: {action!r}\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return changed

    Applier._execute = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    die_after(int(sys.argv.pop(1)))
    main()
