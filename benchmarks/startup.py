"""How long `import contextos` and `contextos --help` take in a new process: `python -m benchmarks.startup`.

Rounds alternate with an interpreter that does nothing, whose time is also shown.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.bars import is_quick, note, report_bar

SCRIPT = Path(sys.executable).with_name("contextos")
COMMANDS = {
    "nothing": [sys.executable, "-c", "pass"],
    "import": [sys.executable, "-c", "import contextos"],
    "help": [str(SCRIPT), "--help"] if SCRIPT.exists() else [sys.executable, "-m", "contextos.cli", "--help"],
}


def once(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def report(rounds: int) -> None:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        once(command)
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            taken[name].append(once(command))
    report_bar(
        "`import contextos` in a new process, p50", median(taken["import"]), 0.3, " s", best=min(taken["import"])
    )
    report_bar("`contextos --help`, p50", median(taken["help"]), 0.5, " s", best=min(taken["help"]))
    note("a new interpreter that does nothing, p50", f"{median(taken['nothing']):9.3f} s")


def main() -> None:
    report(5 if is_quick() else 15)


if __name__ == "__main__":
    main()
