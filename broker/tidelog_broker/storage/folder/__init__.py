"""What lies in a partition's folder beside its segments: whose it is, its history, and marks.

`identity` says which partition it is, `leader_epochs` which epoch began where, `damage_list`
what is known to be damaged. `suspicion` and `page_cache_mark` are marks that outlast a start.
`contents` reads all of it before anything is believed, and `starting_over` replaces a whole log by
an empty one, whatever crash comes between.
"""
