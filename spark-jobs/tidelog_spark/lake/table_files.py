"""What an Iceberg table must know of the files that tasks have written, and where these files are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from tidelog_spark.lake.writing import Written

PROPERTY: Final = "tidelog."
"""The properties of a query begin with this and the id of the query."""

SUFFIX: Final = ".parquet"


def home_of(query: str) -> str:
    """The folder of a query's files in the folder of the table."""
    return f"data/{query}"


def data_files(table: Table, files: Sequence[Written]) -> Iterator[DataFile]:
    """The files, with their partition and their statistics, for a commit of the table."""
    schema = table.schema()
    plan = compute_statistics_plan(schema, table.properties)
    columns = parquet_path_to_id_mapping(schema)
    for file in files:
        statistics = data_file_statistics_from_parquet_metadata(
            pq.read_metadata(BytesIO(file.footer)), stats_columns=plan, parquet_column_mapping=columns
        )
        yield DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{table.location()}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(*file.key),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
