"""The door to the file system, and what needs nothing but files.

Everything that the broker keeps is read and written through the protocol `Files` (DESIGN section 4), so that
the simulator can put a disk behind it that tears writes and forgets what was not synced.

- `protocol`       `Files`, `File`, `Volume`
- `os_files`       the operating system's files
- `whole_files`    reads, writes and replaces whole files; flushes at a start
- `open_files`     a bound on open files; `loaded_indexes` bounds the indexes in memory
- `volume_flush`   when one syncfs stands for many flushes
- `reserve`        room that is set aside for a full disk
- `torn`           tells a torn write from rot

The content of the files belongs in the packages above.
"""
