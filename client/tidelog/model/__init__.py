"""The values that client, CLI, Spark and broker share: no I/O, no wire format.

What belongs here: the descriptions of streams, brokers and records, and the checks of their values.
What does not: `wire` turns these values into protobuf messages and back; `placement` chooses the
brokers of replicas. Import the names from here.

- `configuration` the settings of a stream, with their bounds
- `access`        principals, rules, tokens
- `quotas`        how much a principal may use
- `names`         names of streams, the subjects they record, their labels and owners
- `identifiers`   the 16 bytes that identify a stream, a cluster, or a run of a broker
- `descriptions`  a cluster and its parts, as brokers describe them
- `found_positions` positions in the partitions of a stream, as brokers find them
- `record`        records, receipts and positions
- `projection`    which columns of which records a reader gets
- `replica_lag`   how far followers are behind
- `pipeline_order` the order of batches that are sent without waiting
"""

from tidelog.model.access import AclRule, Operation, Resource, TokenDescription
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
from tidelog.model.found_positions import FoundPosition, FoundPositions
from tidelog.model.identifiers import id_bytes, id_text
from tidelog.model.names import (
    validate_labels,
    validate_owner,
    validate_stream_name,
    validate_subject_pattern,
)
from tidelog.model.pipeline_order import PipelineOrder
from tidelog.model.projection import Projection
from tidelog.model.quotas import Quota
from tidelog.model.record import OFFSET_MAX, AfterBytes, Headers, Position, Receipt, Record

__all__ = [
    "DAY_MS",
    "OFFSET_MAX",
    "REPLICATION_FACTOR_MAX",
    "AclRule",
    "AfterBytes",
    "BrokerDescription",
    "BrokerStanding",
    "ClusterDescription",
    "DrainAnswer",
    "Durability",
    "FoundPosition",
    "FoundPositions",
    "Headers",
    "Listener",
    "NatsAck",
    "Operation",
    "PartitionDescription",
    "PartitionStanding",
    "PartitionVersion",
    "PipelineOrder",
    "Position",
    "Projection",
    "Quota",
    "Receipt",
    "Record",
    "ReplicaDescription",
    "Resource",
    "Retention",
    "StopAnswer",
    "StopHindrance",
    "StreamConfig",
    "StreamDescription",
    "StreamSettings",
    "TokenDescription",
    "id_bytes",
    "id_text",
    "validate_config",
    "validate_labels",
    "validate_owner",
    "validate_stream_name",
    "validate_subject_pattern",
]
