"""Three brokers, each with a listener with TLS beside the one without."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from support.certificates import Authority
from support.hosts import HOST, free_ports
from support.trio import Trio

ONE_BROKER = "{first}"
"""In an option it stands for the address of one of the three brokers."""

ONE_WITH_TLS = "{secure}"
"""The same with TLS; the client must show a certificate."""

FILES = "{files}"
"""In an option it stands for the folder with ca.crt, tls.crt and tls.key of a client."""


class Brokers(Trio):
    """A cluster on loopback."""

    def __init__(self, folder: Path) -> None:
        self._tls, self._secure_ports = folder / "tls", free_ports(3)
        authority = Authority()
        authority.issue(self._tls / "client")
        # The brokers ask for no credentials, and ignore it.
        (self._tls / "client" / "token").write_text("tlt_of_a_test")
        for number in range(3):
            authority.issue_broker(self._tls / str(number), number)
        super().__init__(folder, flags_of=self._flags_of)

    def filled(self, options: Mapping[str, str]) -> dict[str, str]:
        """Options with what they stand for."""
        meant = {
            ONE_BROKER: self.addresses[0],
            ONE_WITH_TLS: f"{HOST}:{self._secure_ports[0]}",
            FILES: str(self._tls / "client"),
        }
        found = dict(options)
        for name in found:
            for sign, text in meant.items():
                found[name] = found[name].replace(sign, text)
        return found

    def _flags_of(self, number: int) -> tuple[str, ...]:
        files = self._tls / str(number)
        return (
            *("--listener", f"secure={HOST}:{self._secure_ports[number]}?tls=mutual"),
            *("--tls-certificate", str(files / "tls.crt")),
            *("--tls-key", str(files / "tls.key")),
            *("--tls-authorities", str(files / "ca.crt")),
        )
