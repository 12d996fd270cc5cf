"""N5: who may have been replaced without knowing falls silent; a broker that is alone cannot have been."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog_broker.config.settings import Settings
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.service import Service
from tidelog_broker.storage.files.os_files import OsFiles


@pytest.mark.parametrize(("peers", "told"), [("", []), ("127.0.0.1:0", [False, True])])
async def test_only_a_broker_with_peers_falls_silent_when_its_session_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peers: str, told: list[bool]
) -> None:
    format_solo(OsFiles(), str(tmp_path / "data"), cluster_id=b"c" * 16, broker_id=0, directory_id=b"d" * 16)
    service = Service(
        Settings(
            data_dir=tmp_path / "data",
            listeners=["internal=127.0.0.1:0"],
            http="",
            peer_listener=peers,
            disk_reserve_bytes=0,
        )
    )
    await service.start()
    heard: list[bool] = []
    monkeypatch.setattr(service.broker, "session", heard.append)
    service.assembly.session_changed(False)
    service.assembly.session_changed(True)

    assert heard == told
    await service.stop()
