"""The question to an approver as lines of text: everything that an answer signs, and nothing that imitates a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.display_escape import displayed, displayed_json

QUESTION_LABELS: Final = frozenset(
    {"call", "evidence", "untrusted", "unknown", "secret", "asked", "by", "binding", "answer", "reason"}
)

NOWHERE: Final = ["planner"]
"""Where an argument was found that nothing in the run has."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BLANKS: Final = re.compile(r"(?<= ) |^ | $")


def question_text(shown: Mapping[str, Any], binding_digest: str) -> list[str]:
    """Return the whole question as lines: the call, each argument, the evidence, which arguments nothing
    trusted has, which are secret, who asks, and the binding.

    `shown` is the text of the question as its journal has it. No line is cut, and the last one is the digest that an
    answer names.
    """
    lines = [question_line("call", f"{shown['capability']} ({shown['mode']})")]
    lines += [question_line(_label(name), displayed_json(value, None)) for name, value in shown["args"].items()]
    lines += [
        question_line("evidence", f"{displayed(one['name'])} = {displayed_json(one['value'], None)}")
        for one in shown["evidence"]
    ]
    untrusted = shown.get("untrusted", {})
    lines += [
        question_line("untrusted", f"{displayed(name)} was found only in {', '.join(map(displayed, found))}")
        for name, found in untrusted.items()
        if list(found) != NOWHERE
    ]
    secrets = shown.get("secrets", {})
    made = [name for name, found in untrusted.items() if list(found) == NOWHERE and name not in secrets]
    if made:
        lines.append(
            question_line("unknown", f"found nowhere, so the agent made it: {', '.join(map(displayed, made))}")
        )
    lines += [
        question_line("secret", f"{displayed(name)} is not shown; {_where(found)}") for name, found in secrets.items()
    ]
    lines.append(question_line("asked by", ", ".join(map(displayed, shown["requester"]))))
    # A digest is copied as a whole, so it has a line of its own, which fits into 80 columns.
    return [*lines, f"binding {binding_digest}"]


def question_line(label: str, text: str) -> str:
    """Return one line of a question, with an escape for each blank at the ends of `text` or after another blank."""
    return f"  {label:<10} {_with_blanks(text)}"


def _where(found: Sequence[str]) -> str:
    return "the agent made it" if list(found) == NOWHERE else f"it was found in {', '.join(map(displayed, found))}"


def _label(name: str) -> str:
    """The name of an argument, in quotes where it could be read as something else."""
    if _PLAIN_NAME.fullmatch(name) and name not in QUESTION_LABELS:
        return name
    return f'"{_with_blanks(displayed(name))}"'


def _with_blanks(text: str) -> str:
    return _BLANKS.sub(r"\\u0020", text)
