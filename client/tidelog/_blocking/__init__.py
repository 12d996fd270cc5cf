"""The parts of `tidelog.blocking`: a thread with the event loop, and a producer for many threads.

`loop_thread` runs the loop that all blocking clients of a process share, and `producer` collects
records before the loop gets them.
"""
