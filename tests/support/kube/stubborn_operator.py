"""An operator that always acts as the leader: ``python -m support.kube.stubborn_operator run …``.

It behaves like an operator that was delayed between checking whether it leads and acting, all the time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tidelog_operator.__main__ import main
from tidelog_operator.kubernetes.leader_election import LeaderElection


def always_lead() -> None:
    run = LeaderElection.run

    async def running(self: LeaderElection, started_leading: Callable[[], None]) -> None:
        sys.stderr.write("became leader, whatever the Lease says\n")
        sys.stderr.flush()
        await run(self, started_leading)

    leads: Any = property(lambda _: True)
    LeaderElection.leads = leads  # type: ignore[method-assign]
    LeaderElection.run = running  # type: ignore[method-assign]


if __name__ == "__main__":
    always_lead()
    main()
