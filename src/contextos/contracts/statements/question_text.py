"""Writes a question and an answer as lines of text: all that an answer signs, and no value can imitate a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.display_escape import an, displayed, displayed_json
from contextos.contracts.statements.questions import shown_text

QUESTION_LABELS: Final = frozenset(
    {"call", "evidence", "source", "untrusted", "unknown", "secret", "speaks", "asked", "by", "until", "not", "bound"}
    | {"can", "binding", "answer", "reason", "happened", "output", "changed", "signed"}
)
"""The first words of the lines of a question, an answer and a settlement. An argument of such a name is in quotes."""

NOWHERE: Final = ["planner"]
"""The origin of an argument whose value nothing in the run has: the agent made it."""

NOT_BOUND: Final = "services, programs, shared libraries, files outside workspace and packages"
"""The things that no approval covers, whatever the call is. Source: docs/security.md, "Code that is bound"."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BLANKS: Final = re.compile(r"(?<= ) |^ | $")


def question_text(shown: Mapping[str, Any], binding_digest: str) -> list[str]:
    """Return the whole question as lines: the call, each argument, the evidence and its sources, the arguments whose
    value no trusted source has, the secret arguments, who asks, the deadline, and the binding.

    `shown` is the text of the question as its journal has it. No line is cut, and the last one is the digest that an
    answer names.
    """
    lines = [question_line("call", f"{shown['capability']} ({shown['mode']})")]
    lines += argument_lines(shown["args"])
    for item in shown["evidence"]:
        lines.append(question_line("evidence", f"{displayed(item['name'])} = {displayed_json(item['value'], None)}"))
        lines.append(question_line("source", f"{displayed(item['ref'])} about {displayed(item['subject'])}"))
        for place, tolerance in item.get("volatile", {}).items():
            lines.append(question_line("can move", f"{displayed(place)} by at most {displayed_json(tolerance)}"))
    untrusted = shown.get("untrusted", {})
    lines += [
        question_line("untrusted", f"{displayed(name)} was found only in {', '.join(map(displayed, places))}")
        for name, places in untrusted.items()
        if list(places) != NOWHERE
    ]
    secrets = shown.get("secrets", {})
    unknown = [name for name, places in untrusted.items() if list(places) == NOWHERE and name not in secrets]
    if unknown:
        lines.append(
            question_line("unknown", f"found nowhere, so the agent made it: {', '.join(map(displayed, unknown))}")
        )
    lines += [
        question_line("secret", f"{displayed(name)} is not shown; {_origin_text(places)}")
        for name, places in secrets.items()
    ]
    lines += [
        question_line("speaks", f"{displayed(source)} has words to an agent, where data was declared")
        for source in shown.get("instructions", ())
    ]
    lines.append(question_line("asked by", ", ".join(map(displayed, shown["requester"]))))
    lines.append(question_line("until", shown["until"]))
    lines.append(question_line("not bound", NOT_BOUND))
    # A digest is copied as a whole, so it has a line of its own, which fits into 80 columns.
    return [*lines, f"binding {binding_digest}"]


def signed_text(question: Mapping[str, Any], approver_id: str, verdict: str, reason: str) -> str:
    """Return, as text for people, what a person signs with `approval_statement`: both follow from the same content."""
    binding, shown = question["binding"], shown_text(question["binding"], question["args"], question["evidence"])
    *lines, last = question_text(shown, question["binding_digest"])
    signed = [
        f"{displayed(binding['gate_id'])} asks {an(displayed(binding['required_role']))}:",
        *lines,
        question_line("answer", f"{displayed(approver_id)}: {verdict}"),
        question_line("reason", displayed(reason) or "none"),
        last,
    ]
    return "\n".join(signed)


def argument_lines(args: Mapping[str, Any]) -> list[str]:
    """Return one line for each argument of a call."""
    return [question_line(_argument_label(name), displayed_json(value, None)) for name, value in args.items()]


def question_line(label: str, text: str) -> str:
    """Return one line of a question, with an escape for each blank at the ends of `text` or after another blank."""
    return f"  {label:<10} {_escape_blanks(text)}"


def _origin_text(places: Sequence[str]) -> str:
    return "the agent made it" if list(places) == NOWHERE else f"it was found in {', '.join(map(displayed, places))}"


def _argument_label(name: str) -> str:
    """Return the name of an argument, in quotes if it could be read as something else."""
    if _PLAIN_NAME.fullmatch(name) and name not in QUESTION_LABELS:
        return name
    return f'"{_escape_blanks(displayed(name))}"'


def _escape_blanks(text: str) -> str:
    return _BLANKS.sub(r"\\u0020", text)
