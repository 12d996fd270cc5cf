"""The metadata log on disk (M6): `log` is the open log, `recovery` opens it, `format` defines its bytes.

`segment` locates its files and entries, and `install` replaces the whole log by a leader's snapshot.
The meaning of the entries belongs in `core.metadata`.
"""
