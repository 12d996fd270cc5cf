"""The door to the file system, and what needs nothing but files: whole files, open files, room on the volume.

Everything that the broker keeps goes through the protocol `Files` (DESIGN section 4), so that the
simulator can put a disk behind it that tears writes and forgets what was not synced. `volume_flush`
says when one syncfs stands for many flushes, `reserve` sets room aside for a full disk, and `torn`
tells a torn write from rot.

What stands in the files belongs in the packages above.
"""
