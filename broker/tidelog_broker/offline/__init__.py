"""Tools for a data directory that no broker has open: format it, check it, recover it. Blocking.

`formatting` makes a new one. `verify` reads all of one (`verify_log` one partition,
`verify_metadata` the metadata log) and changes nothing. `rewrite` makes a directory usable again
after a failed flush. `quorum_losses` and `quorum_recovery` let a voter go on alone after the
majority is lost (M2).

What a running broker does at each start belongs in `storage`.
"""
