"""What rains on a cluster while clients work: each fault by the rate that the plan gives it.

One module a kind: `processes`, `network`, `disks`, `volumes` (put back, or rotten), `clocks`, and what people
do: `administration` (moves, deletions), `settings`, `recoveries` of the metadata. What happens to NATS is in
`simulator.nats.faults`.
"""
