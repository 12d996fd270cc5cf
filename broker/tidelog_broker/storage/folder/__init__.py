"""The files in a partition's folder beside its segments: its identity, its history, and marks.

`identity` says which partition lies in the folder, `leader_epochs` which epoch began where, and
`damage_list` which ranges are known to be damaged. `suspicion` and `page_cache_mark` are marks that
outlast a start. `contents` reads all files of the folder before recovery trusts any of them.
`starting_over` replaces a whole log by an empty log, safely if a crash comes in between.
"""
