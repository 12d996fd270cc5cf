"""Columns of an Iceberg table that later runs leave out or add."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lake.samples import QUERY, SCHEMA, rows_of
from tidelog.errors import InvalidRequest
from tidelog_spark.lake.batches import Batches, Order, Run, stage
from tidelog_spark.lake.folders import Partitioning, Time
from tidelog_spark.lake.iceberg import IcebergTable, TableName, catalog_properties
from tidelog_spark.lake.stores import ObjectStore
from tidelog_spark.payload import BAD_RECORD

BY_HOUR = Partitioning(Time.HOUR)
GOOD = SCHEMA.remove(SCHEMA.get_field_index(BAD_RECORD))
HEADERS = pa.field(
    "headers",
    pa.list_(
        pa.field(
            "element",
            pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]),
            nullable=False,
        )
    ),
    nullable=False,
)


def target(folder: Path) -> IcebergTable:
    name = TableName("shop.orders", catalog_properties("sql", None, str(folder), {}))
    return IcebergTable(name, ObjectStore(), BY_HOUR, QUERY)


def runner(batch: int, schema: pa.Schema) -> Run:
    rows = rows_of(batch)
    header = [{"key": "k", "value": b"v"}]
    columns = [
        pa.array([header] * rows.num_rows, field.type) if field.name == "headers" else rows.column(field.name)
        for field in schema
    ]

    def run(order: Order) -> Iterable[Mapping[str, Any]]:
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        return [row for described in stage([batch], order) for row in described.to_pylist()]

    return run


def write(folder: Path, batch: int, schema: pa.Schema) -> Table:
    used = target(folder)
    driver = Batches(used)
    driver.open(schema)
    driver.write(batch, runner(batch, schema))
    return used.table.refresh()


def test_a_later_run_may_leave_out_and_add_columns_of_the_record(tmp_path: Path) -> None:
    write(tmp_path, 0, GOOD)
    fewer = GOOD.remove(GOOD.get_field_index("offset"))
    write(tmp_path, 1, fewer)
    table = write(tmp_path, 2, GOOD.append(HEADERS))
    assert [field.name for field in table.schema().fields if field.required] == []
    rows = table.scan().to_arrow().sort_by("timestamp")
    assert rows.num_rows == 36
    assert rows["offset"].null_count == 12
    assert rows["headers"].null_count == 24
    assert table.scan(row_filter="offset is null").to_arrow().num_rows == 12


def earlier(folder: Path) -> Table:
    """A table as an earlier version made it."""
    name, by = "shop.orders", BY_HOUR
    made = target(folder)
    made._catalog.create_namespace("shop")
    with (
        made._catalog.create_table_transaction(name, schema=GOOD) as creation,
        creation.update_spec() as spec,
    ):
        spec.add_field(by.time_column, "hour", "timestamp_hour")
    table = made._catalog.load_table(name)
    assert [field.name for field in table.schema().fields if field.required] == ["offset", "timestamp"]
    return table


def test_a_required_column_of_an_earlier_table_stays_required(tmp_path: Path) -> None:
    earlier(tmp_path)
    table = write(tmp_path, 0, GOOD.append(HEADERS))
    assert [field.name for field in table.schema().fields if field.required] == ["offset", "timestamp"]
    assert table.scan().to_arrow()["offset"].null_count == 0


def test_a_run_that_would_leave_out_a_required_column_is_refused(tmp_path: Path) -> None:
    earlier(tmp_path)
    more = pa.schema([GOOD.field("timestamp"), GOOD.field("region"), pa.field("more", pa.string())])
    with pytest.raises(InvalidRequest, match=r"requires the column offset, .* source\.options\.columns"):
        target(tmp_path).open(more)
    table = target(tmp_path)._catalog.load_table("shop.orders")
    assert table.schema().column_names == GOOD.names, "a refused run adds no column"
