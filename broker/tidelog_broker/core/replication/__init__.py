"""The rules of replication (DESIGN section 5), each a small pure module named after what it decides.

What belongs here: what a partition's copies owe each other and what readers may see.
What does not: logs on disk, streams between brokers, the image.

- `high_watermark` R3: what is committed
- `positions`      R13: whether a reader's position fits the log's history
"""
