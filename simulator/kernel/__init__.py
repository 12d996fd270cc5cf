"""What an operating system gives a process, simulated: time and turns, threads, an end, and connections.

`loop` is the event loop, `executors` the threads, `processes` both together with their end; `network` has the
machines and what lies between them, `transports` the sockets. Nothing here knows a broker.
"""
