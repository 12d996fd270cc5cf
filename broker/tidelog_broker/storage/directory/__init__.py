"""A data directory: whose it is, all its logs, and what they save together.

`data_directory` has its identity and its lock. `store` has its logs: `opening` opens and creates
them, `folders` has their folders, and `saving` saves in `checkpoint` what a start may believe of them.
`superseding` sets a metadata log aside whose history was given up. `retention` and
`retention_time` decide what is old enough to be deleted.
"""
