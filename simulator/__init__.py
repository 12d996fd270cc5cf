"""Doubles for the world below and around the broker, deterministic by seed.

`disk` is a file system that tears writes and forgets what was not synced.
"""
