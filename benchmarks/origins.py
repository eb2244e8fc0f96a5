"""Where arguments come from, over 100 kB of content that a run has seen: `python -m benchmarks.origins`.

The content is one answer of an untrusted tool, random words. It is taken in once, when the next call is judged, and
each later call is compared with it. The bar is on a later call with five arguments. Both only compute, so the CPU time
of the thread is measured.
"""

from __future__ import annotations

import random
import time
from statistics import median
from string import ascii_lowercase
from types import SimpleNamespace
from typing import Any

from benchmarks.bars import is_quick, note, report_bar
from contextos.action.content.seen_content import SeenContent
from contextos.contracts.journal import Logged

ROUNDS = 200
CONTENT_CHARS = 100_000
BAR_MS = 1.0
ARGS = {
    "to": "mallory@attacker.example",
    "iban": "DE89 3704 0044 0532 0130 00",
    "amount": 12,
    "path": "/home/ana/report.txt",
    "text": "Dear all, see you at 5 pm in room 1234.",
}


def content() -> str:
    """Return the same words in each run."""
    chosen = random.Random(1)
    words = ["".join(chosen.choices(ascii_lowercase, k=chosen.randint(2, 9))) for _ in range(3000)]
    return " ".join(chosen.choices(words, k=CONTENT_CHARS // 5))[:CONTENT_CHARS]


def seen(text: str) -> tuple[SeenContent, Any]:
    """Return what a run has seen after a tool answered `text`, and what of the run's scope is read."""
    definition = SimpleNamespace(kind="read", output_classification=None, output_integrity="untrusted")
    mail = SimpleNamespace(capability_id="mail.read", definition=definition, adapter=SimpleNamespace(capabilities=()))
    pack = SimpleNamespace(
        pack_meta=SimpleNamespace(data_classification="INTERNAL"), decision_layer=SimpleNamespace(task_templates=())
    )
    scope = SimpleNamespace(
        pinned=SimpleNamespace(pack=pack),
        received=SimpleNamespace(fields={"input": {"message": "pay the invoice of bob"}}),
        tools=SimpleNamespace(capabilities={"mail.read": mail}),
    )
    envelope = {"capability_id": "mail.read", "status": "ok", "output": {"text": text}}
    return SeenContent([Logged(1, "tool.returned", "1/read/1", 0, "", {"envelope": envelope}, "")]), scope


def measure(rounds: int) -> tuple[list[float], list[float]]:
    """Return the times in milliseconds of the first call after the content came, and of each later call."""
    text, first, later = content(), [], []
    for _ in range(max(3, rounds // 20)):
        run, scope = seen(text)
        start = time.thread_time_ns()
        found = run.trace("2/send", ARGS, scope, always=False)
        first.append((time.thread_time_ns() - start) / 1e6)
        assert found, "what is sent was looked for"
    for number in range(rounds):
        start = time.thread_time_ns()
        run.trace(f"{number}/send", ARGS, scope, always=False)
        later.append((time.thread_time_ns() - start) / 1e6)
    return first, later


def report(rounds: int) -> None:
    first, later = measure(rounds)
    note("origins of arguments, 100 kB of content, the first call", f"{median(first):9.2f} ms")
    label = "origins of five arguments, 100 kB of content, p50"
    report_bar(label, median(later), BAR_MS, " ms", best=min(later), against=later)


def main() -> None:
    report(ROUNDS // 4 if is_quick() else ROUNDS)


if __name__ == "__main__":
    main()
