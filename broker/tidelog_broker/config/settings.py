"""All settings of a broker, checked in one object.

Every setting has a description, which names its unit if the name of the setting does not.
`tidelog-broker run --help` and docs/configuration.md are made from the descriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from tidelog_broker.config.checks import (
    check_http,
    check_https,
    check_keys,
    check_listeners,
    check_nats,
    check_peer_listener,
    check_seeds,
    check_superusers,
    check_voters,
    split_names,
)

MIB = 1 << 20

BROKER_ID_MAX = 0xFFFFFFFF
"""The files and the protocol have 32 bits for the id of a broker."""


class Settings(BaseSettings):
    """The checked settings of one broker."""

    model_config = SettingsConfigDict(env_prefix="TIDELOG_", extra="forbid", frozen=True)

    data_dir: Path = Field(description="The folder of logs and metadata. `tidelog-broker format` creates it.")
    broker_id: int | None = Field(
        default=None,
        ge=0,
        le=BROKER_ID_MAX,
        description="The id of this broker. It is needed if the data directory is empty and the broker "
        "joins or forms a cluster. If the data directory belongs to another broker, the broker does not "
        "start. Empty: the id in the data directory.",
    )
    listeners: Annotated[list[str], AfterValidator(check_listeners)] = Field(
        default=["internal=127.0.0.1:9210"],
        description="The addresses for clients (gRPC), each as "
        "name=host:port[@advertised-host[:port]][?tls=server|mutual]. Port 0: a free port. An advertised "
        "port may be written as 31090+id: the id of the broker is added to it. With ?tls=server the broker "
        "shows tls_certificate, which must name the advertised host; with ?tls=mutual the client must show "
        "a certificate, too.",
    )
    http: Annotated[str, AfterValidator(check_http)] = Field(
        default="127.0.0.1:9211",
        description="The address of /metrics, /healthz, /readyz and /debug/state, as "
        "host:port[?tls=server|mutual]. Empty: no HTTP.",
    )
    peer_listener: Annotated[str, AfterValidator(check_peer_listener)] = Field(
        default="",
        description="The address to which other brokers connect, as host:port[@advertised-host[:port]]. "
        "Empty: no other broker can connect, so the cluster has only this broker.",
    )
    peer_tls: Literal["off", "permissive", "mutual"] = Field(
        default="off",
        description="Whether connections between brokers use TLS, with a certificate at both ends. off: "
        "they do not, and a program that reaches the peer listener can act as a broker; mutual: they do; "
        "permissive: they do if both brokers can. permissive protects nothing and is for the change between "
        "off and mutual, which do not talk to each other. mutual and permissive need tls_certificate, "
        "tls_key and tls_authorities.",
    )
    tls_certificate: str = Field(
        default="",
        description="The path of the certificate of this broker (PEM), followed by the certificates between "
        "it and its authority. It has one URI tidelog://<cluster>/broker/<id> among its subject alternative "
        "names. The files of TLS are read again when they change.",
    )
    tls_key: str = Field(
        default="", description="The path of the private key of the certificate (PEM, without a password)."
    )
    tls_authorities: str = Field(
        default="",
        description="The path of the certificates of the authorities that sign the certificates of brokers "
        "(PEM). During a change of the authority it holds both.",
    )
    tls_client_authorities: str = Field(
        default="",
        description="The path of the certificates of the authorities that sign the certificates of clients "
        "(PEM), for addresses with ?tls=mutual. Empty: tls_authorities.",
    )
    authentication: Literal["off", "required"] = Field(
        default="off",
        description="Whether calls need credentials. off: each client may do everything; required: a call "
        "needs a token or a client certificate, and rules say what its principal may do. It must be the same "
        "on all brokers.",
    )
    insecure: bool = Field(
        default=False,
        description="Whether addresses other than loopback may be open to every program. false: the broker "
        "does not start unless such addresses for clients and HTTP have TLS and need credentials "
        "(?tls=mutual, or ?tls=server and authentication), and peer_tls is mutual.",
    )
    superusers: Annotated[str, AfterValidator(check_superusers)] = Field(
        default="",
        description="The principals and groups that may do everything, separated by commas, for example "
        "user:admin,group:operations. No rule applies to them, so they cannot lock themselves out.",
    )
    token_audience: str = Field(
        default="tidelog",
        min_length=1,
        description="The audience that tokens of Kubernetes and of OpenID Connect must be made for.",
    )
    token_review_url: Annotated[str, AfterValidator(check_https)] = Field(
        default="",
        description="The address of the API server of Kubernetes, which reviews tokens of service "
        "accounts, for example https://kubernetes.default.svc. Empty: such tokens are refused.",
    )
    token_review_token: str = Field(
        default="/var/run/secrets/kubernetes.io/serviceaccount/token",
        description="The path of the token with which the broker asks the API server. Its service account "
        "needs the ClusterRole system:auth-delegator.",
    )
    token_review_authorities: str = Field(
        default="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        description="The path of the authorities that sign the certificate of the API server (PEM). Empty: "
        "the public authorities.",
    )
    oidc_issuer: str = Field(
        default="",
        description="The issuer (iss) of tokens of OpenID Connect. Empty: such tokens are refused.",
    )
    oidc_keys: Annotated[str, AfterValidator(check_keys)] = Field(
        default="",
        description="The keys that sign these tokens (JWKS): an https address, or the path of a file. "
        "oidc_issuer needs it.",
    )
    oidc_authorities: str = Field(
        default="",
        description="The path of the authorities that sign the certificate of the server in oidc_keys "
        "(PEM). Empty: the public authorities.",
    )
    oidc_principal_claim: str = Field(
        default="sub", min_length=1, description="The claim of these tokens that names the principal."
    )
    oidc_groups_claim: str = Field(
        default="groups", min_length=1, description="The claim of these tokens that lists the groups."
    )
    seeds: Annotated[str, AfterValidator(check_seeds)] = Field(
        default="",
        description="The peer listeners of some brokers of the cluster, each as host:port, separated by "
        "commas. If the data directory is empty, this broker joins their cluster.",
    )
    formation: str = Field(
        default="",
        description="The path of a file that says whether the cluster was formed: "
        '`{"state": "never formatted", "clusterId": "<uuid>"}`, later with the state `formatted`. The '
        "file may be absent. While the state is `never formatted`, broker 0 forms the cluster if its data "
        "directory is empty and no seed has data. Empty: `tidelog-broker format` forms the cluster.",
    )
    voters: Annotated[int, AfterValidator(check_voters)] = Field(
        default=3,
        ge=1,
        le=5,
        description="How many brokers vote on the metadata: 1, 3 or 5. The other brokers follow the "
        "metadata.",
    )
    rack: str = Field(default="", description="The rack of this broker. Replicas are spread over racks.")
    nats: Annotated[str, AfterValidator(check_nats)] = Field(
        default="",
        description="The URLs of NATS servers, separated by commas. Empty: streams with a subject record "
        "nothing.",
    )
    nats_name: str = Field(default="tidelog", description="The client name that the NATS server shows.")

    flush_threads: int = Field(default=4, ge=1, le=64, description="How many files are flushed at a time.")
    catch_up_threads: int = Field(default=2, ge=1, le=64, description="How many threads read old segments.")
    decode_threads: int = Field(
        default=2, ge=1, le=64, description="How many threads turn batches into plain records for readers."
    )
    projection_threads: int = Field(
        default=1,
        ge=1,
        le=64,
        description="How many threads filter batches for readers that ask for some columns, subjects or keys "
        "(Fetch with the format PROJECTED). It bounds the processors that filtering takes from producers: "
        "further readers wait for their turn.",
    )
    fetch_decoded_bytes_max: int = Field(
        default=256 * MIB,
        ge=4 * MIB,
        description="How many bytes are decoded at a time for all readers of plain records together (Fetch "
        "with the format RECORDS), and as many again for all readers of projections (PROJECTED). Further "
        "readers wait for their turn. A batch that needs more is refused. Answers with one large record that "
        "clients have not taken yet may use half of this in addition. Bytes.",
    )
    fetch_answer_bytes_max: int = Field(
        default=256 * MIB,
        ge=4 * MIB,
        description="How many bytes are held for all readers of batches and of projections together (Fetch "
        "with the formats VERBATIM and PROJECTED): in answers that they have not taken yet, and in batches "
        "that were read ahead. One client address may use a quarter of it. Above this limit, answers are "
        "smaller, and a batch of more than 64 KiB waits for its turn. Bytes.",
    )
    validation_threads: int = Field(
        default=2, ge=1, le=64, description="How many threads check large batches and requests of clients."
    )
    catch_up_bytes_per_second: int = Field(
        default=64 * MIB,
        ge=MIB,
        description="How fast this broker sends data to a broker whose replicas are far behind. Replicas "
        "that keep up are not limited. Bytes per second.",
    )
    open_files_max: int = Field(default=512, ge=16, description="How many files stay open between uses.")
    tail_cache_bytes_max: int = Field(
        default=64 * MIB, ge=0, description="How much memory is used for recent batches. Bytes."
    )
    disk_reserve_bytes: int = Field(
        default=16 * MIB,
        ge=0,
        description="Disk space set aside so that metadata can be written on a full disk. Bytes.",
    )

    clock_skew_max_ms: int = Field(
        default=500,
        ge=10,
        description="How far the clock of this broker may be from the clock of the cluster. If it is further "
        "off, the broker reports it, and other brokers lead where they can. No append gets a time that is "
        "further off. ms.",
    )
    produce_timeout_ms: int = Field(
        default=30_000,
        ge=1,
        description="How long an append waits for its commit if the request names no time. ms.",
    )
    checkpoint_interval_ms: int = Field(
        default=1000, ge=10, description="How often recovery points are saved while records are written. ms."
    )
    page_cache_flush_interval_ms: int = Field(
        default=30_000,
        ge=10,
        description="How often page-cache streams are flushed in the background. ms.",
    )
    page_cache_dirty_bytes_max: int = Field(
        default=256 * MIB,
        ge=MIB,
        description="If page-cache streams have more unflushed data than this, a flush begins at once. "
        "Bytes.",
    )
    syncfs: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether one syncfs flushes many files, on ext4 and xfs from Linux 5.17 on. auto: only "
        "if data_dir is the mount point of its own file system; on: also elsewhere, if no other program "
        "writes much to that file system; off: never, each file is flushed alone.",
    )
    syncfs_dirty_bytes_max: int = Field(
        default=4 * MIB,
        ge=0,
        description="If page-cache streams have more unflushed data than this, syncfs is not used. Bytes.",
    )
    sweep_interval_ms: int = Field(
        default=10_000, ge=10, description="How often retention and the age of segments are checked. ms."
    )
    scrub_bytes_per_second: int = Field(
        default=4 * MIB,
        ge=0,
        description="How fast logs are read to find damaged data (bit rot). 0: never. Bytes per second.",
    )
    scrub_interval_ms: int = Field(
        default=86_400_000,
        ge=100,
        description="The pause between two readings of all logs to find damaged data. ms.",
    )
    deleted_delay_ms: int = Field(
        default=60_000, ge=0, description="How long the files of a deleted stream are kept. ms."
    )
    message_bytes_max: int = Field(
        default=17 * MIB,
        ge=4 * MIB,
        le=65 * MIB,
        description="The largest message that clients may send, and the largest answer with plain records: "
        "a batch and 1 MiB around it. Streams with a larger batch_bytes_max need a larger value. gRPC copies "
        "each message on the event loop: this delays all requests by up to 1 ms per MiB. Bytes.",
    )
    connections_max: int = Field(
        default=10_000,
        ge=1,
        description="How many gRPC calls are served at a time; further calls are refused.",
    )
    client_calls_max: int = Field(
        default=2_500,
        ge=1,
        description="How many of these gRPC calls one client address may have at a time; further calls are "
        "refused.",
    )
    http_connections_max: int = Field(
        default=32,
        ge=8,
        description="How many HTTP connections are open at a time. Above this limit, a new connection "
        "replaces the oldest connection that waits for its client, so slow clients cannot block health "
        "probes.",
    )
    http_timeout_ms: int = Field(
        default=10_000,
        ge=100,
        description="How long an HTTP connection may take from its opening to the end of its answer. ms.",
    )
    log_json: bool = Field(default=False, description="Whether log lines are JSON; pods need JSON.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level that is logged: debug, info, warning or error."
    )

    @property
    def superuser_names(self) -> tuple[str, ...]:
        """The names in `superusers`."""
        return split_names(self.superusers)
