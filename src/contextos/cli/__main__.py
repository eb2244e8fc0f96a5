"""`python -m contextos.cli` is `contextos`."""

from contextos.cli import main

main()
