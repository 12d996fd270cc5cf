"""The operator that leads whatever the Lease says: ``python -m support.kube.stubborn_operator run …``.

As one is that was held up between asking whether it leads and what it then does, all the time.
"""

from __future__ import annotations

import sys
from typing import Any

from tidelog_operator.__main__ import main
from tidelog_operator.kubernetes.leader_election import LeaderElection


def always_lead() -> None:
    run = LeaderElection.run

    async def running(self: LeaderElection) -> None:
        sys.stderr.write("this operator leads, as it believes\n")
        sys.stderr.flush()
        await run(self)

    leads: Any = property(lambda _: True)
    LeaderElection.leads = leads  # type: ignore[method-assign]
    LeaderElection.run = running  # type: ignore[method-assign]


if __name__ == "__main__":
    always_lead()
    main()
