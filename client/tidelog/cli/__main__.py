"""``python -m tidelog.cli`` is ``tidelog``."""

from tidelog.cli import main

if __name__ == "__main__":
    main()
