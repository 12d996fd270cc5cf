"""Authorities whose brokers listen on the addresses of these tests."""

from __future__ import annotations

import datetime
from pathlib import Path

from chaos import certificates
from chaos.certificates import DAY
from support.hosts import HOST
from tidelog_broker.tls.files import TlsFiles

__all__ = ["DAY", "Authority"]


class Authority(certificates.Authority):
    """Signs certificates."""

    def issue_broker(
        self,
        folder: Path,
        broker_id: int,
        *,
        cluster: str = "main",
        lasts: datetime.timedelta = DAY,
        trusted: bytes = b"",
        host: str = HOST,
    ) -> TlsFiles:
        """A certificate of a broker, for its listeners on this machine, too."""
        return super().issue_broker(
            folder, broker_id, cluster=cluster, lasts=lasts, trusted=trusted, host=host
        )
