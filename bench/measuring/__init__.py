"""Measuring: CPU and memory of processes, latencies, histograms, and work at a steady rate.

Nothing here knows a server. `bench.harness` and the clients use it.
"""
