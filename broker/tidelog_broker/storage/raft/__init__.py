"""The metadata log on disk (M6): `log` is open for writing, `recovery` opens it, `format` has its bytes.

`segment` says where its files and entries are, and `install` puts a leader's snapshot in the place
of a whole log. What entries mean belongs in `core.metadata`.
"""
