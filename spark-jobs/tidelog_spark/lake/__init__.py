"""Micro-batches as files, each row once, whatever crashes and whenever: a folder of Parquet, or Iceberg.

What belongs here: what tasks write, what decides that a batch counts, and what readers may see in between.
What does not: Spark, streams and brokers; `tidelog_spark.jobs` joins them with this package.

- `batches`           a batch from rows to a target: staged, decided, completed
- `columns`           the columns of a table and of dead letters (pure)
- `folders`           the folder of each row (pure)
- `writing`           the rows of a task as Parquet files
- `journal`           the plan that makes a batch count once in a folder
- `parquet`           the lake, and the dead letters beside it
- `compaction`        small files of a folder merged in one step for every reader
- `iceberg`           commits to an Iceberg table
- `table_files`       what a table must know of its files
- `table_compaction`  small files of a table merged by one commit
- `table_expiry`      old snapshots expired, and their files removed
- `upkeep`            what follows a batch, and may fail
- `stores`            file systems and object stores
"""
