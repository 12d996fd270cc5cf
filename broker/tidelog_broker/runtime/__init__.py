"""What runs when: the asyncio side of a broker, between its doors and its files.

What belongs here: queues, rounds, timers, threads, and the order of things. What does not:
bytes on the wire (`api`, `nats`), bytes on disk (`storage`), rules (`core`). One event
loop; everything that blocks runs in a thread that is named for it.
"""
