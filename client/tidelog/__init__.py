"""Tidelog: a durable log for NATS and Kubernetes, with Arrow from producer to lake.

What belongs here: the names that applications import. Begin with `connect`. Names with an underscore are not
for applications.

- `client`, `producer`, `reader`, `admin`, `cluster_admin`, `access_admin`  the asyncio client
- `sink`           writes the batches of a job exactly once, for the Spark sink
- `blocking`       the same without asyncio
- `records`, `model`, `errors`  the format, the values, the errors
- `history`        checks what producers and readers saw
- `placement`      chooses brokers for replicas and leaders
- `testing`        a cluster in memory
- `cli`            the command line
- `_producing`, `_sinking`, `_reading`, `_blocking`, `_connecting`, `_options`, `_arguments`  the parts of
the client
- `wire`, `cluster_wire`, `access_wire`, `large_field`  values to messages and back
- `wording`        lists in a sentence for users
- `large_blocks`   keeps memory of the size of batches from the system
- `without_pandas` keeps pyarrow from importing pandas

The imports are lazy, so that the broker, which shares the values, the errors and the format with the client,
does not load the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog._connecting.retry import RetryPolicy as RetryPolicy
    from tidelog._connecting.tls import Tls as Tls
    from tidelog._options import ClientOptions as ClientOptions
    from tidelog._options import ProducerOptions as ProducerOptions
    from tidelog._options import ReaderOptions as ReaderOptions
    from tidelog._reading.fetching import FetchedBatch as FetchedBatch
    from tidelog.client import Client as Client
    from tidelog.client import connect as connect
    from tidelog.errors import TidelogError as TidelogError
    from tidelog.model import AclRule as AclRule
    from tidelog.model import AfterBytes as AfterBytes
    from tidelog.model import Durability as Durability
    from tidelog.model import Operation as Operation
    from tidelog.model import Position as Position
    from tidelog.model import Receipt as Receipt
    from tidelog.model import Record as Record
    from tidelog.model import Resource as Resource
    from tidelog.model import Retention as Retention
    from tidelog.model import StreamSettings as StreamSettings
    from tidelog.producer import Producer as Producer
    from tidelog.reader import Reader as Reader

_WHERE = {
    "AclRule": "model",
    "AfterBytes": "model",
    "Client": "client",
    "ClientOptions": "_options",
    "Durability": "model",
    "FetchedBatch": "_reading.fetching",
    "Operation": "model",
    "Position": "model",
    "Producer": "producer",
    "ProducerOptions": "_options",
    "Reader": "reader",
    "ReaderOptions": "_options",
    "Receipt": "model",
    "Record": "model",
    "Resource": "model",
    "Retention": "model",
    "RetryPolicy": "_connecting.retry",
    "StreamSettings": "model",
    "TidelogError": "errors",
    "Tls": "_connecting.tls",
    "connect": "client",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
    return getattr(import_module(f"tidelog.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
