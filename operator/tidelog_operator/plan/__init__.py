"""What is to be done, from what is observed: pure, so that a table of situations is its test.

What belongs here: decisions. What does not: how anything is asked or told (`observe`, `apply`), and what
objects are told of themselves (`status`).

- `brokers`  the brokers as plans see them, and where new copies go
- `streams`  Streams: made, adopted, changed, let go, deleted
- `scaling`  how many brokers there are
- `balancing` copies and leaders where they lie best
"""
