"""Stories that a run can tell in place of chance: each under the load of every run, judged as every run.

A scenario does one thing, as often as it is asked to, measures it (`chaos.figures`), and claims of
itself what must be so; a claim that fails is an anomaly. One file each; `catalog` knows them by name.
"""
