"""The harness: what a case and a contender are, and how a run measures and reports them.

`model` and `case` have the terms, `stage` the servers of a run, `alternate` measures the contenders in
turn, `results` computes medians and ratios, `report` prints them. `processes` runs servers and clients,
`build` keeps what peers need built. What a case measures is in `bench.cases`.
"""
