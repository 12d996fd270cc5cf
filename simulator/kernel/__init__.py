"""The operating system, simulated: event loops, threads, processes and TCP connections.

- `loop`        the event loop of a process
- `executors`   its threads
- `processes`   a process: loop, threads and sockets, which end together
- `wire`        delays, losses and cuts between machines
- `transports`  one end of a connection, as an event loop sees it
- `network`     machines, ports and connections

Nothing here knows a broker. The disk is `simulator.disk`, calls over connections are `simulator.rpc`.
"""
