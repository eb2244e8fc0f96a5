"""The command `contextos`, and `python -m contextos`. Ctrl-C ends it with exit code 130, also while it still loads."""

import sys


def start() -> None:
    """Load the command line and run it."""
    try:
        from contextos.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    start()
