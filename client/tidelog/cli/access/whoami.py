"""``tidelog whoami``: the principal of this command line."""

from __future__ import annotations

import tidelog
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.output import OUTPUT, Output, console, facts, print_json

EXAMPLE = "tidelog whoami"


def whoami(server: str = SERVER, output: Output = OUTPUT) -> None:
    """Show as whom the cluster knows this client."""

    found = connected(server, tidelog.Client.who_am_i)
    if output is Output.JSON:
        print_json({**found._asdict(), "groups": list(found.groups)})
        return
    console().print(
        facts(
            (
                ("principal", found.principal),
                ("groups", ", ".join(found.groups) or "none"),
                ("superuser", "yes" if found.superuser else "no"),
                (
                    "authentication",
                    "required" if found.authentication else "off: each client may do everything",
                ),
            )
        )
    )
