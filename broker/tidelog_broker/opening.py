"""Opens the data directory of a broker at a start: an empty folder first becomes one (M1).

Neighbours: `membership.formation` decides whether the broker forms a cluster or joins one,
`offline.formatting` writes new directories, `assembly` builds the broker on the opened directory.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from tidelog.model import id_text
from tidelog_broker.config.settings import Settings
from tidelog_broker.errors import BrokerError
from tidelog_broker.listener_addresses import parse_address
from tidelog_broker.membership.formation import beginning
from tidelog_broker.offline.formatting import format_joiner, format_solo, make_empty_log
from tidelog_broker.platform import Platform
from tidelog_broker.storage.directory import superseding
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.tls.credentials import Credentials

log = structlog.get_logger(__name__)

SEED_PAUSE_SECONDS: Final = 0.5
"""Between two rounds in which the seeds are asked for the id of their cluster."""


async def open_data_directory(
    settings: Settings, platform: Platform, threads: Executor, tls: Credentials | None
) -> DataDirectory:
    """The data directory of a broker, open and locked; the files are read in `threads`.

    `tls`: for connections to seeds. Waits for a seed if it has to. Raises `BrokerError` or OSError.
    """
    await _join(settings, platform, tls)
    loop = asyncio.get_running_loop()
    directory = await loop.run_in_executor(
        threads,
        lambda: DataDirectory.open(
            platform.files, data_path(settings), broker_id=settings.broker_id,
            reserve_bytes=settings.disk_reserve_bytes,
            read_boot_id=platform.boot_id, lock=platform.lock,
        ),
    )  # fmt: skip
    try:
        await loop.run_in_executor(threads, _start_over, platform, directory)
    except BaseException:
        directory.close()
        raise
    return directory


def data_path(settings: Settings) -> str:
    """The absolute path of the data directory."""
    return str(settings.data_dir.resolve())


def seeds_of(settings: Settings) -> tuple[tuple[str, int], ...]:
    """Peer listeners of other brokers, to begin with."""
    return tuple(parse_address(seed.strip()) for seed in settings.seeds.split(",") if seed.strip())


async def _join(settings: Settings, platform: Platform, tls: Credentials | None) -> None:
    """Makes an empty folder the data directory of a broker: of the seeds' cluster, or of a new one (M1)."""
    path = data_path(settings)
    if settings.seeds and not settings.peer_listener:
        raise BrokerError("seeds are given, but no peer listener; give --peer-listener as well")
    if not settings.seeds and not settings.formation:
        return
    if DataDirectory.is_formatted(platform.files, path):
        return
    if settings.broker_id is None:
        raise BrokerError(
            f"{path} is empty, and a broker needs an id to join or form a cluster; give --broker-id"
        )
    marker = Path(settings.formation) if settings.formation else None
    cluster_id, forms = await beginning(
        seeds_of(settings), settings.broker_id, SEED_PAUSE_SECONDS, marker, tls
    )
    make = format_solo if forms else format_joiner
    make(
        platform.files, path,
        cluster_id=cluster_id, broker_id=settings.broker_id, directory_id=platform.new_id(),
    )  # fmt: skip
    what = "forming a cluster" if forms else "joining a cluster"
    log.info(what, cluster=id_text(cluster_id), broker=settings.broker_id)


def _start_over(platform: Platform, directory: DataDirectory) -> None:
    """Sets aside a metadata log whose history a forced recovery gave up (M2). Blocking."""
    if superseding.is_marked(platform.files, directory.path):
        make = partial(make_empty_log, platform.files)
        aside = superseding.set_aside(platform.files, directory.path, make)
        log.warning(
            "the metadata log was set aside; this broker gets the metadata from the others", kept=aside
        )
