"""The broker's settings: flags over environment (``TIDELOG_*``) over a YAML file over defaults.

One validated object; every field has a unit in its name or its sentence, and a default.
`tidelog-broker --help` and docs/configuration.md are made from the sentences here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

MIB = 1 << 20


def parse_listen(spec: str) -> tuple[str, str, int, str, int | None]:
    """``name=host:port[@advertised-host[:port]]`` → name, host, port, advertised host, advertised port.

    Port 0 takes a free one. IPv6 hosts stand in brackets. Raises ValueError with what would be right.
    """
    name, equals, rest = spec.partition("=")
    if not equals:
        name, rest = "internal", spec
    address, at, advertised = rest.partition("@")
    host, port = _host_port(address, spec)
    if port is None:
        raise ValueError(
            f"listener {spec!r} names no port; write name=host:port, for example {name}={host}:9210"
        )
    shown_host, shown_port = _host_port(advertised, spec) if at else (host, None)
    if not name.replace("-", "").isalnum():
        raise ValueError(f"listener name {name!r} has other characters than letters, digits and '-'")
    return name, host, port, shown_host, shown_port


def parse_address(address: str) -> tuple[str, int]:
    """``host:port`` → both; raises ValueError with what would be right."""
    host, port = _host_port(address, address)
    if port is None:
        raise ValueError(f"address {address!r} names no port; write host:port, for example 127.0.0.1:9211")
    return host, port


def _host_port(address: str, spec: str) -> tuple[str, int | None]:
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        port = rest.removeprefix(":")
        if not bracket:
            raise ValueError(f"{spec!r}: the bracket of the IPv6 address is not closed")
    else:
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
    if not host:
        raise ValueError(f"{spec!r} names no host; 127.0.0.1 listens on this machine only, 0.0.0.0 on all")
    if not port:
        return host, None
    if not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{spec!r}: {port!r} is no port; it is a number up to 65535")
    return host, int(port)


def _checked(specs: list[str]) -> list[str]:
    names = [parse_listen(spec)[0] for spec in specs]
    if not specs:
        raise ValueError("at least one listener is needed, for example internal=127.0.0.1:9210")
    if len(set(names)) != len(names):
        raise ValueError(f"listener names {names} repeat; each needs its own")
    return specs


def _checked_address(address: str) -> str:
    if address:
        parse_address(address)
    return address


class Settings(BaseSettings):
    """See the module."""

    model_config = SettingsConfigDict(env_prefix="TIDELOG_", extra="forbid", frozen=True)

    data_dir: Path = Field(description="Folder for logs and metadata; created by `tidelog-broker format`.")
    broker_id: int | None = Field(
        default=None,
        ge=0,
        le=0x7FFFFFFF,
        description="Refuse a data directory of another broker; absent: take what is there.",
    )
    listeners: Annotated[list[str], AfterValidator(_checked)] = Field(
        default=["internal=127.0.0.1:9210"],
        description="gRPC addresses as name=host:port[@advertised-host[:port]]; port 0 takes a free one.",
    )
    http: Annotated[str, AfterValidator(_checked_address)] = Field(
        default="127.0.0.1:9211",
        description="host:port of /metrics, /healthz, /readyz and /debug/state; empty: none.",
    )
    rack: str = Field(default="", description="Where this broker stands; replicas are spread over racks.")
    nats: str = Field(
        default="",
        description="URLs of NATS servers, comma-separated; empty: streams with a subject record nothing.",
    )
    nats_name: str = Field(default="tidelog", description="The client name shown by the NATS server.")

    flush_threads: int = Field(default=4, ge=1, le=64, description="Files flushed at a time.")
    catch_up_threads: int = Field(default=2, ge=1, le=64, description="Threads that read old segments.")
    open_files_max: int = Field(default=512, ge=16, description="Files kept open between uses.")
    tail_cache_bytes_max: int = Field(
        default=64 * MIB, ge=0, description="Recent batches kept in memory. Bytes."
    )
    disk_reserve_bytes: int = Field(
        default=16 * MIB, ge=0, description="Set aside so that metadata can be written on a full disk. Bytes."
    )

    produce_timeout_ms: int = Field(
        default=30_000,
        ge=1,
        description="How long an append waits for its commit if the request does not say. ms.",
    )
    checkpoint_interval_ms: int = Field(
        default=1000, ge=10, description="How often recovery points are saved while writing. ms."
    )
    page_cache_flush_interval_ms: int = Field(
        default=30_000,
        ge=10,
        description="After this long page-cache streams are flushed in the background. ms.",
    )
    page_cache_dirty_bytes_max: int = Field(
        default=256 * MIB, ge=MIB, description="Over this much unflushed data a flush begins at once. Bytes."
    )
    sweep_interval_ms: int = Field(
        default=10_000, ge=10, description="How often retention and age rolls are looked at. ms."
    )
    deleted_delay_ms: int = Field(
        default=60_000, ge=0, description="How long a deleted stream's files are kept. ms."
    )
    connections_max: int = Field(
        default=10_000, ge=1, description="Calls served at a time; others are refused."
    )
    log_json: bool = Field(default=False, description="Write log lines as JSON (for pods).")
    log_level: str = Field(
        default="info", pattern="^(debug|info|warning|error)$", description="debug, info, warning or error."
    )

    @classmethod
    def load(cls, config_file: Path | None = None, **flags: Any) -> Settings:
        """Settings from all sources; raises pydantic's ValidationError."""

        class FromFile(cls):  # type: ignore[valid-type,misc]
            @classmethod
            def settings_customise_sources(
                cls,
                settings_cls: type[BaseSettings],
                init_settings: PydanticBaseSettingsSource,
                env_settings: PydanticBaseSettingsSource,
                dotenv_settings: PydanticBaseSettingsSource,
                file_secret_settings: PydanticBaseSettingsSource,
            ) -> tuple[PydanticBaseSettingsSource, ...]:
                sources: tuple[PydanticBaseSettingsSource, ...] = (init_settings, env_settings)
                if config_file is not None:
                    sources += (YamlConfigSettingsSource(settings_cls, yaml_file=config_file),)
                return sources

        given = {name: value for name, value in flags.items() if value is not None}
        return Settings.model_validate(FromFile(**given).model_dump())
