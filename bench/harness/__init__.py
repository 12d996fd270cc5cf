"""The harness: what a case and a contender are, and how a run measures and reports them.

- `model`: a contender, and a sample of its work.
- `case`: a case and its contenders.
- `stage`: the servers of a run.
- `work`: how much work a measurement is.
- `alternate`: measures the contenders of a case in turn.
- `results`: medians, and their ratios.
- `report`: the table and the JSON.
- `processes`: servers and clients as processes.
- `build`: what peers need built or fetched.

What a case measures is in `bench.cases`.
"""
