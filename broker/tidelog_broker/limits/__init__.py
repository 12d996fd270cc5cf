"""Limits that keep one request or one client from taking the whole broker: of memory, threads and turns.

`byte_budget` and `answer_room` bound the bytes that all calls hold together, `decoding` and `projections` the
bytes that are decoded for readers, `checks` the bytes that are checked for producers. `rate` bounds what is
used in a second. `turns` spreads work over the turns of the event loop, `loop_watch` reports turns that took
too long, and `collector` keeps the garbage collector from causing them.

No module here knows records, partitions or streams.
"""
