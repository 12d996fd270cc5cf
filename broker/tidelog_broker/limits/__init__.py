"""What keeps one request, or one client, from taking the whole broker: bounds on memory, threads and turns.

`byte_budget` and `answer_room` bound the bytes that all calls hold together, `decoding` what
readers decode, `checks` what producers have checked. `turns` spreads work over the turns of the
event loop, `loop_watch` reports turns that took too long, and `collector` keeps the garbage
collector from causing them.

Nothing here knows what a record, a partition or a stream is.
"""
