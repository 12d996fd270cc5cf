"""The nouns that client, CLI, Spark and broker share, as values: no I/O, no wire format.

What belongs here: what a stream, a broker or a record is, and which values can be right.
What does not: `wire` turns these values into protobuf messages and back; `placement`
decides where replicas go. Import the names from here.

- `configuration` what a stream is asked to be and what it is, with the bounds
- `names`         names of streams, the subjects they record, their labels and owners
- `identifiers`   the 16 bytes that stand for a stream, a cluster, a broker's run
- `descriptions`  what a cluster says of itself
- `record`        what applications write and read
- `pipeline_order` what is refused behind a refused batch
"""

from tidelog.model.configuration import (
    DAY_MS,
    REPLICATION_FACTOR_MAX,
    Durability,
    NatsAck,
    Retention,
    StreamConfig,
    StreamSettings,
    validate_config,
)
from tidelog.model.descriptions import (
    BrokerDescription,
    BrokerStanding,
    ClusterDescription,
    DrainAnswer,
    Listener,
    PartitionDescription,
    PartitionStanding,
    PartitionVersion,
    ReplicaDescription,
    StopAnswer,
    StopHindrance,
    StreamDescription,
)
from tidelog.model.identifiers import id_bytes, id_text
from tidelog.model.names import (
    validate_labels,
    validate_owner,
    validate_stream_name,
    validate_subject_pattern,
)
from tidelog.model.pipeline_order import PipelineOrder
from tidelog.model.record import OFFSET_MAX, Headers, Position, Receipt, Record

__all__ = [
    "DAY_MS",
    "OFFSET_MAX",
    "REPLICATION_FACTOR_MAX",
    "BrokerDescription",
    "BrokerStanding",
    "ClusterDescription",
    "DrainAnswer",
    "Durability",
    "Headers",
    "Listener",
    "NatsAck",
    "PartitionDescription",
    "PartitionStanding",
    "PartitionVersion",
    "PipelineOrder",
    "Position",
    "Receipt",
    "Record",
    "ReplicaDescription",
    "Retention",
    "StopAnswer",
    "StopHindrance",
    "StreamConfig",
    "StreamDescription",
    "StreamSettings",
    "id_bytes",
    "id_text",
    "validate_config",
    "validate_labels",
    "validate_owner",
    "validate_stream_name",
    "validate_subject_pattern",
]
