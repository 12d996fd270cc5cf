"""The access to the file system, and the modules that need nothing but files.

The broker reads and writes all its data through the protocol `Files` (DESIGN section 4). So the simulator can
put a disk behind it that tears writes and loses unsynced bytes.

- `protocol`       `Files`, `File`, `Volume`
- `os_files`       the operating system's files
- `whole_files`    reads, writes and replaces whole files; flushes at a start
- `open_files`     a bound on open files; `loaded_indexes` bounds the indexes in memory
- `volume_flush`   decides whether one syncfs may replace many flushes
- `reserve`        space that is kept free for a full disk
- `torn`           tells a torn write from rot

The content of the files belongs in the packages that use this one.
"""
