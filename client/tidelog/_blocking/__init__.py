"""What `tidelog.blocking` stands on: a thread with the event loop, and a producer for many threads.

`loop_thread` runs the loop that all blocking clients of a process share, and `producer` gathers
records before they go to it.
"""
