"""The instruments: nothing here knows a server or a case.

- `machine`: CPU and memory of processes, and how busy other programs keep the machine.
- `clock`: a span of work in a client.
- `latency`: percentiles of latencies that a client measured.
- `buckets`: percentiles from a broker's histograms.
- `pace`: work at a steady rate.
"""
