"""Load on a cluster from the place of its users.

- `program`        the clients, as one program
- `base`           the operations of a test on that program
- `pod`, `local`   the program in a pod, and on this machine
"""
