"""The broker's settings: flags over environment (``TIDELOG_*``) over a YAML file over defaults.

One validated object; every field has a unit in its name or its sentence, and a default.
`tidelog-broker --help` and docs/configuration.md are made from the sentences here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from annotated_types import Ge, Le
from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from tidelog_broker.errors import BrokerError
from tidelog_broker.nats.errors import ServerAddressInvalid
from tidelog_broker.nats.settings import parse_server

MIB = 1 << 20

PORT_MAX = 65535
BROKER_ID_MAX = 0xFFFFFFFF
"""The files and the protocol have 32 bits for the number of a broker."""

SHOWN_CHARACTERS_MAX = 100
"""How much of a wrong value stands in the sentence about it."""


class SettingsInvalid(BrokerError):
    """Settings that cannot be used; a sentence for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


PLUS_ID = "+id"
"""After an advertised port: broker 2 advertises one that is higher by 2."""


def parse_listen(spec: str, broker_id: int = 0) -> tuple[str, str, int, str, int | None]:
    """``name=host:port[@advertised-host[:port[+id]]]`` → name, host, port, advertised host, advertised port.

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
    shown_host, shown_port = _host_port(advertised.removesuffix(PLUS_ID), spec) if at else (host, None)
    if advertised.endswith(PLUS_ID):
        if shown_port is None or shown_port + broker_id > PORT_MAX:
            raise ValueError(
                f"{spec!r}: {PLUS_ID!r} stands behind a port, to which the broker's number is added, "
                f"{PORT_MAX} at most"
            )
        shown_port += broker_id
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
    # ASCII and short: int() refuses other digits, and thousands of them.
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= PORT_MAX):
        raise ValueError(f"{spec!r}: {port!r} is no port; it is a number up to {PORT_MAX}")
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


def _checked_peers(spec: str) -> str:
    if spec:
        parse_listen(spec)
    return spec


def _checked_seeds(seeds: str) -> str:
    for seed in seeds.split(","):
        if seed.strip():
            parse_address(seed.strip())
    return seeds


def _checked_voters(voters: int) -> int:
    if voters % 2 == 0:
        raise ValueError(f"{voters} voters tolerate no more failures than {voters - 1}; write 1, 3 or 5")
    return voters


def _checked_nats(servers: str) -> str:
    for address in servers.split(","):
        if address.strip():
            try:
                parse_server(address.strip())
            except ServerAddressInvalid as error:
                raise ValueError(str(error)) from None
    return servers


def parse_broker_id(text: str) -> int:
    """The number of a broker as somebody wrote it; raises `SettingsInvalid`."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= BROKER_ID_MAX):
        raise SettingsInvalid([_wrong("broker_id", text)])
    return int(text)


class Settings(BaseSettings):
    """See the module."""

    model_config = SettingsConfigDict(env_prefix="TIDELOG_", extra="forbid", frozen=True)

    data_dir: Path = Field(description="Folder for logs and metadata; created by `tidelog-broker format`.")
    broker_id: int | None = Field(
        default=None,
        ge=0,
        le=BROKER_ID_MAX,
        description="This broker's number: needed to join a cluster with an empty data directory; "
        "a data directory of another broker is refused. Absent: take what is there.",
    )
    listeners: Annotated[list[str], AfterValidator(_checked)] = Field(
        default=["internal=127.0.0.1:9210"],
        description="gRPC addresses as name=host:port[@advertised-host[:port]]; port 0 takes a free one. "
        "An advertised port may be written as 31090+id: the broker's number is added to it.",
    )
    http: Annotated[str, AfterValidator(_checked_address)] = Field(
        default="127.0.0.1:9211",
        description="host:port of /metrics, /healthz, /readyz and /debug/state; empty: none.",
    )
    peer_listener: Annotated[str, AfterValidator(_checked_peers)] = Field(
        default="",
        description="Where other brokers connect, as host:port[@advertised-host[:port]]; "
        "empty: this broker takes no peers and stays alone.",
    )
    seeds: Annotated[str, AfterValidator(_checked_seeds)] = Field(
        default="",
        description="host:port of the peer listeners of some brokers of the cluster, comma-separated. "
        "With an empty data directory this broker joins their cluster.",
    )
    formation: str = Field(
        default="",
        description="Path of a file, which may be absent, that says whether the cluster was formed: "
        '`{"state": "never formatted", "clusterId": "<uuid>"}`, later with the state `formatted`. It has '
        "broker 0 form the cluster when its data directory is empty and no seed has data; empty: that is for "
        "`tidelog-broker format` to do.",
    )
    voters: Annotated[int, AfterValidator(_checked_voters)] = Field(
        default=3,
        ge=1,
        le=5,
        description="How many brokers shall vote on the metadata: 1, 3 or 5. The others follow.",
    )
    rack: str = Field(default="", description="Where this broker stands; replicas are spread over racks.")
    nats: Annotated[str, AfterValidator(_checked_nats)] = Field(
        default="",
        description="URLs of NATS servers, comma-separated; empty: streams with a subject record nothing.",
    )
    nats_name: str = Field(default="tidelog", description="The client name shown by the NATS server.")

    flush_threads: int = Field(default=4, ge=1, le=64, description="Files flushed at a time.")
    catch_up_threads: int = Field(default=2, ge=1, le=64, description="Threads that read old segments.")
    decode_threads: int = Field(
        default=2, ge=1, le=64, description="Threads that turn batches into plain records for readers."
    )
    fetch_decoded_bytes_max: int = Field(
        default=256 * MIB,
        ge=4 * MIB,
        description="What readers of plain records (Fetch with the format RECORDS) have decoded at a time, "
        "all together; others wait for their turn, and a batch that needs more is refused. Half as much "
        "again may lie in answers with one large record that clients have not taken yet. Bytes.",
    )
    fetch_answer_bytes_max: int = Field(
        default=256 * MIB,
        ge=4 * MIB,
        description="What readers of batches (Fetch with the format VERBATIM) have in answers that they "
        "have not taken yet, and read ahead, all together; a client's address has a quarter of it. Over it "
        "answers are smaller, and a batch of more than 64 KiB waits for its turn. Bytes.",
    )
    validation_threads: int = Field(
        default=2, ge=1, le=64, description="Threads that check large batches and requests of clients."
    )
    catch_up_bytes_per_second: int = Field(
        default=64 * MIB,
        ge=MIB,
        description="How fast a follower that is far behind is fed, beside the others. Bytes per second.",
    )
    open_files_max: int = Field(default=512, ge=16, description="Files kept open between uses.")
    tail_cache_bytes_max: int = Field(
        default=64 * MIB, ge=0, description="Recent batches kept in memory. Bytes."
    )
    disk_reserve_bytes: int = Field(
        default=16 * MIB, ge=0, description="Set aside so that metadata can be written on a full disk. Bytes."
    )

    clock_skew_max_ms: int = Field(
        default=500,
        ge=10,
        description="A clock further from the cluster's is off: it is reported, others lead where they can, "
        "and no append is dated further from it. ms.",
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
    syncfs: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether many files are flushed by one syncfs, on ext4 and xfs and from Linux 5.17 on. "
        "auto: if data_dir is the mount point of a file system of its own; on: wherever it is, because "
        "nobody else writes much there; off: file by file.",
    )
    syncfs_dirty_bytes_max: int = Field(
        default=4 * MIB,
        ge=0,
        description="Over this much unflushed data of page-cache streams no syncfs is used. Bytes.",
    )
    sweep_interval_ms: int = Field(
        default=10_000, ge=10, description="How often retention and age rolls are looked at. ms."
    )
    scrub_bytes_per_second: int = Field(
        default=4 * MIB,
        ge=0,
        description="How fast logs are read to look for rot; 0: never. Bytes per second.",
    )
    scrub_interval_ms: int = Field(
        default=86_400_000, ge=100, description="From the end of one look at all logs to the next. ms."
    )
    deleted_delay_ms: int = Field(
        default=60_000, ge=0, description="How long a deleted stream's files are kept. ms."
    )
    message_bytes_max: int = Field(
        default=17 * MIB,
        ge=4 * MIB,
        le=65 * MIB,
        description="The largest message that clients may send, and the largest answer with plain records: "
        "a batch and 1 MiB around it. Streams with a larger batch_bytes_max need more; but gRPC copies each "
        "message on the event loop, which holds up all requests: up to a millisecond a MiB. Bytes.",
    )
    connections_max: int = Field(
        default=10_000, ge=1, description="gRPC calls served at a time; others are refused."
    )
    client_calls_max: int = Field(
        default=2_500,
        ge=1,
        description="Of them, gRPC calls of one client's address; others of that client are refused.",
    )
    http_connections_max: int = Field(
        default=32,
        ge=8,
        description="HTTP connections at a time. The longest open of those that wait for their client makes "
        "room for a new one, so that slow clients keep no probe out.",
    )
    http_timeout_ms: int = Field(
        default=10_000,
        ge=100,
        description="How long an HTTP connection may take, from its opening to the end of its answer. ms.",
    )
    log_json: bool = Field(default=False, description="Write log lines as JSON (for pods).")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error."
    )

    @classmethod
    def load(cls, config_file: Path | None = None, **flags: Any) -> Settings:
        """Settings from all sources; raises `SettingsInvalid`."""
        from_file = _read_file(config_file) if config_file is not None else {}

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
                return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=from_file)

        given = {name: value for name, value in flags.items() if value is not None}
        try:
            return Settings.model_validate(FromFile(**given).model_dump())
        except ValidationError as error:
            # Not chained: what pydantic says may hold the credentials of NATS servers.
            raise SettingsInvalid([_sentence(problem) for problem in error.errors()]) from None
        except SettingsError:
            # Listeners are the only setting whose text in the environment has a form of its own.
            name = "TIDELOG_LISTENERS"
            text = next((value for key, value in os.environ.items() if key.upper() == name), "")
            raise SettingsInvalid(
                [f"{name} is {_shown(text)}; write a JSON list, such as '[\"internal=127.0.0.1:9210\"]'"]
            ) from None


def _read_file(path: Path) -> dict[str, Any]:
    """The settings in a YAML file, not checked yet."""
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise SettingsInvalid(
            [f"cannot read the settings file {path}: {error.strerror or error}; name a YAML file"]
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise SettingsInvalid([f"the settings file {path} is no YAML: {where}{error.problem}"]) from None
    except (yaml.YAMLError, ValueError) as error:
        # Bytes that are no text, dates that are none.
        reason = str(error).partition("\n")[0]
        raise SettingsInvalid([f"the settings file {path} is no YAML that can be read: {reason}"]) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        # Not shown: it may hold the credentials of NATS servers.
        kind = "a list" if isinstance(content, list) else "a single value"
        raise SettingsInvalid(
            [f"the settings file {path} holds {kind}; write a setting a line, such as data_dir: /data"]
        )
    unknown = [name for name in content if str(name).lower() not in Settings.model_fields]
    if unknown:
        raise SettingsInvalid([f"in the settings file {path}: {_unknown(name)}" for name in unknown])
    return content


def _sentence(problem: ErrorDetails) -> str:
    """What pydantic found wrong: the setting, its value, and what would be right."""
    name = str(problem["loc"][0])
    if problem["type"] == "missing":
        return f"{name} is missing; give --{name.replace('_', '-')}"
    if problem["type"] == "extra_forbidden":
        return _unknown(name)
    if problem["type"] == "value_error":
        # From the checks above, which say all of it.
        return f"{name}: {problem['ctx']['error']}"
    return _wrong(name, problem["input"])


def _unknown(name: object) -> str:
    return f"there is no setting {_shown(name)}; `tidelog-broker run --help` lists them"


def _wrong(name: str, value: object) -> str:
    # The addresses of NATS servers may hold credentials.
    shown = "of another kind" if name == "nats" else _shown(value)
    return f"{name} is {shown}; write {_right(name)}"


def _right(name: str) -> str:
    field = Settings.model_fields[name]
    if get_origin(field.annotation) is Literal:
        *others, last = get_args(field.annotation)
        return f"{', '.join(others)} or {last}"
    if field.annotation is bool:
        return "true or false"
    if field.annotation is str:
        return "text"
    if field.annotation is Path:
        return "the path of a folder"
    if field.annotation == list[str]:
        return "a list of addresses, each as name=host:port"
    low = next(bound.ge for bound in field.metadata if isinstance(bound, Ge))
    high = next((bound.le for bound in field.metadata if isinstance(bound, Le)), None)
    return f"a whole number from {low} to {high}" if high is not None else f"a whole number, at least {low}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"
