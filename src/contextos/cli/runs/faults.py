"""The output and the exit code of commands that show runs, for runs that do not verify."""

from __future__ import annotations

from collections.abc import Iterable

from contextos.cli.layout import folded
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import Integrity


def fault_lines(fault: str | None) -> list[str]:
    """Return the lines that state a fault of verification; no line if `fault` is None."""
    return [] if fault is None else list(folded("  DOES NOT VERIFY: ", f"{displayed(fault)}; see `contextos verify`"))


def exit_code_of_faults(faults: Iterable[str | None]) -> int:
    """Return the exit code of a command that shows runs: 3 (as in `verify`) if one run has a fault, else 0."""
    return 0 if all(fault is None for fault in faults) else Integrity.exit_code
