"""Defines what is fixed for a kind of journal entry: the columns of its row, and helpers that make their functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.journal import Logged

Severity = Literal["info", "warn", "error"]
Fold = Callable[[RunAccount, Logged], None]
Telling = Callable[[Any], Mapping[str, Any]]
Naming = Callable[[Any], Iterator[tuple[str, str]]]
"""A function that yields the terms of a body, by which a search finds its run: (name of a criterion, value)."""
Chapter = Literal["asked", "knew", "allowed", "did", "approved", "came"]
"""A part of the story of a run."""
Topic = Literal["shown", "policy", "gate", "fact", "authority", "model", "call"]
"""The subject of a reason (`deployment.why`)."""
Because = Iterator[tuple[Topic, str | None, str]]
"""Reasons of one entry: the topic, the tool that it is about or None for the whole run, and the sentence."""


class Aside(str):
    """A line of a story without a time."""

    __slots__ = ()


class StoryReader(NamedTuple):
    """The data that a sentence can look up: the account of the whole run, and why rules exist, by rule id."""

    run: RunAccount
    rationales: Mapping[str, str]


Lines = Iterator[str]
Sentence = str | Callable[[Logged, StoryReader], Lines]
"""One line with members of the body in braces, each of which is escaped; or a function that yields the lines. A line
without braces needs no body, so it is shown for an erased entry too.
"""

BY_RUNTIME: Final = "runtime"
"""The author of the entries that the loop of a run writes."""
ANY_AUTHOR: Final = "*"

TOOL_GATEWAY: Final = "action.tool_gateway"
TRUST_APPROVALS: Final = "trust.approvals"
SLOT_SELECTION: Final = "slots.selection"
AGENT_SESSION: Final = "decision.session"


class Kind(NamedTuple):
    """One kind of entry. Everything that reads a journal by kind reads this row.

    `body` is the type of the body; for a `recorded` kind, which is an answer from outside, it is the type of the
    answer. Other kinds are derived: the runtime computed them. `author` is who writes the entry: a name, `*` for any,
    or the JSON Pointer of the name in the body. An `appended` entry is written outside the loop, and no head is signed
    over it until the next commit of the loop. The time before an entry that `wakes` was spent waiting: for a person, an
    agent or a driver.

    `moves` says how the entry changes the state of a run, with one word for each state in which the entry is allowed:
    `waiting` (nothing changes), `waiting>executing`, `open,waiting>scoring`, or `planning>resolved:replan` if the state
    changes only for this value of the body's member `decides`.

    `component` is the `plane.component` that writes the entry, and `component_by_key` another component by the first
    part of the key; an empty text is the run itself. An entry with a `severity` is an event in the log of an operator,
    and a run with an `always_kept` entry is always exported as a trace. `told` returns the part of the body that people
    who watch the run see; without it they see nothing. `fold` changes the account of the run.

    `story` has the lines for each part of the story that `contextos runs show` prints, and `why` the reasons: a topic
    with one line about the whole run, or a function. `graded` returns the severity of the event for a body (None: no
    event), if not all entries have the same. `noted` returns the ids, names and numbers of the event, without free
    text. `noticed` returns the part for people outside. `terms` yields the terms by which a search finds the run.
    `asks` and `answers` name the wait that begins or ends with this entry: `approval`, `slot`, `settlement` or `*`.
    """

    ledger: str
    body: Any
    moves: str = ""
    recorded: bool = False
    author: str = BY_RUNTIME
    appended: bool = False
    wakes: bool = False
    decides: str = ""
    component: str = ""
    component_by_key: Mapping[str, str] = {}
    severity: Severity | None = None
    always_kept: bool = False
    fold: Fold | None = None
    told: Telling | None = None
    story: Mapping[Chapter, Sentence] = {}
    why: tuple[Topic, str] | Callable[[Logged], Because] | None = None
    graded: Callable[[Any], Severity | None] | None = None
    noted: Telling | None = None
    noticed: Telling | None = None
    terms: Naming | None = None
    asks: str = ""
    answers: str = ""


def picked(*names: str) -> Telling:
    """Return a function that copies these members of a body, without those that it does not have."""
    return lambda body: {name: body[name] for name in names if body.get(name) is not None}


def counted(body: Any) -> Mapping[str, Any]:
    """Return the number of items of a body, as `count`."""
    return {"count": len(body)}


def filled(line: str, body: Mapping[str, Any]) -> str:
    """Return `line` with each member of the body that it names in braces filled in, texts escaped."""
    return line.format_map(
        {name: displayed(value) if isinstance(value, str) else value for name, value in body.items()}
    )


def listed_failures(what: str) -> Callable[[Logged], Because]:
    """Return a function that gives the failures in a body as reasons."""

    def failure_reasons(entry: Logged) -> Because:
        for failure in entry.body["failures"]:
            text = f"{what}: {displayed(failure['code'])}, {displayed(failure['detail'])}"
            yield "call", failure.get("capability_id"), text

    return failure_reasons


def failures_text(body: Mapping[str, Any]) -> str:
    """Return the failures in a body, to add to a line."""
    return "".join(f"; {failure['code']}: {displayed(failure['detail'])}" for failure in body["failures"])
