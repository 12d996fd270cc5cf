"""A data directory: its identity, all its logs, and the state that they save together.

`data_directory` has its identity and its lock. `store` has its logs: `opening` opens and creates
them, and `folders` has their folders. `saving` writes to `checkpoint` the state of the logs that the
next start may trust. `superseding` sets aside a metadata log whose history was given up. `retention`
and `retention_time` decide which records are old enough to be deleted.
"""
