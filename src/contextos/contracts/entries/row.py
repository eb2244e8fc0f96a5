"""What is fixed for a kind of journal entry: the columns of its row, and small makers of what a row tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from contextos.contracts.entries.account import RunAccount
from contextos.contracts.journal import Logged

Severity = Literal["info", "warn", "error"]
Fold = Callable[[RunAccount, Logged], None]
Telling = Callable[[Any], Mapping[str, Any]]

BY_RUNTIME: Final = "runtime"
"""The author of what the loop of a run writes."""
ANY_AUTHOR: Final = "*"

TOOL_GATEWAY: Final = "action.tool_gateway"
TRUST_APPROVALS: Final = "trust.approvals"
SLOT_SELECTION: Final = "slots.selection"
AGENT_SESSION: Final = "decision.session"


class Kind(NamedTuple):
    """One kind of entry. Everything that reads a journal by kind reads this row.

    `body` is the type of the body; of a `recorded` kind, which is an answer from outside, that of the answer. Other
    kinds are derived: the runtime computed them. `author` is who writes it: a name, `*` for any, or the JSON Pointer of
    the name in the body. An `appended` one is written outside the loop, and no head is signed over it until the next
    commit of the loop. The time before one that `wakes` was spent waiting: for a person, an agent or a driver.

    `moves` says what it does to the state of a run, one word for each state in which it is allowed: `waiting` (nothing
    changes), `waiting>executing`, `open,waiting>scoring`, or `planning>resolved:replan` where this is so for one value
    of the member `decides` of the body.

    `component` is the `plane.component` that writes it, and `component_by_key` another one by the first part of the
    key; an empty one is the run itself. With a `severity` it is an event in the log of an operator, and a run with an
    `always_kept` one is always exported as a trace. `told` is what who watches the run gets to see of its body; without
    it nothing. `fold` changes the account of the run.
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


def picked(*names: str) -> Telling:
    """Return a function that copies these members of a body, without those that it does not have."""
    return lambda body: {name: body[name] for name in names if body.get(name) is not None}


def counted(body: Any) -> Mapping[str, Any]:
    """Tell how many items a body has."""
    return {"count": len(body)}
