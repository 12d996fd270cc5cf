"""Tidelog as a contender: its broker and a client that uses only the public library."""
