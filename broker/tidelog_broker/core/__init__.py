"""The rules, without I/O: deterministic functions and state machines (DESIGN 2).

Nothing below imports asyncio, grpc, os, time, random, threading, logging or uuid: time,
randomness and identifiers come in as arguments, so that a simulator can replay a run.
"""
