"""The gate of an agent's session, in this process (`App.gate`) or over HTTP (`contextos.client`): the protocol that a
framework uses, and the answers to a call (`Done`, `Refused` or `Waiting`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.artifacts import RecordedArtifact, Withheld
from contextos.contracts.envelopes.tool import ToolError
from contextos.errors import InvalidInput, MalformedJson, Problem

MAX_ARGS_BYTES: Final = 262_144
"""The most bytes of the arguments of a call, as canonical JSON."""
MAX_CALL_ID_CHARS: Final = 128
MAX_TOOL_CHARS: Final = 200
REFUSED_ARGS: Final = "$refused"
"""The only argument that is recorded of a call that no gate could take; its value is the code of the fault. A call that
states this argument is refused.
"""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a call was refused, for the agent: a stable code, a sentence, and what it can do. `facts` names the missing
    facts, or the exhausted limit. `because` has the rationales of the rules that deny, as their authors wrote them.
    """

    code: str
    detail: str
    remedy: str
    facts: tuple[str, ...] = ()
    because: tuple[str, ...] = ()

    def __str__(self) -> str:
        because = f" ({'; '.join(self.because)})" if self.because else ""
        return f"{self.detail}{because}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class Done:
    """The call is over. Without an `error` the tool did it, and `output` is its answer. With an `error` the tool
    answered with this error, or a person settled that nothing was done; then `output` is
    `{"error": {"code", "message"}}`.

    `withheld` says why nobody reads the answer; then `output` is None. Without an `error` the write was made all the
    same. A read whose answer is withheld, and a call whose answer was erased, also have an `error`.

    `replayed`: this call had no effect of its own. An earlier call of the session, under another call id, did the same
    operation, and this is its answer. `artifacts` are what the tool made beside its output.
    """

    call_id: str
    output: Mapping[str, Any] | None
    error: ToolError | None = None
    replayed: bool = False
    withheld: Withheld | None = None
    artifacts: tuple[RecordedArtifact, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The call was not made. `ended`: the session is over."""

    call_id: str
    reasons: tuple[Reason, ...]
    ended: bool = False

    def __str__(self) -> str:
        # Reasons with the same remedy state it once, after the last of them.
        last_numbers = {reason.remedy: number for number, reason in enumerate(self.reasons)}
        texts = (
            str(reason if last_numbers[reason.remedy] == number else replace(reason, remedy=""))
            for number, reason in enumerate(self.reasons)
        )
        return "refused: " + "; ".join(texts)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The session waits. Make the same call again, under the same call id, when the wait is over; any process can.

    `waits_for` is `approval`, `settlement`, `slot` or `engine`, and `question` is the question to a person. `about` is
    the id of the call for which the session waits: this call, or an earlier call that has to be answered first.
    """

    call_id: str
    waits_for: str
    about: str
    question: Mapping[str, Any]


CallAnswer: TypeAlias = Done | Refused | Waiting


class DescribedTool(Protocol):
    """What a model reads about a tool: a text, and the JSON Schema of its arguments."""

    @property
    def description(self) -> str: ...

    @property
    def input_schema(self) -> Mapping[str, Any]: ...


class ToolGate(Protocol):
    """An open session, as a framework uses it. `tools` are the ids of the tools that its agent can call."""

    @property
    def session(self) -> str: ...

    @property
    def tools(self) -> tuple[str, ...]: ...

    def described_tools(self) -> Mapping[str, DescribedTool]:
        """Return the tools that can be described here, by tool id."""
        ...

    async def call(self, name: str, args: Mapping[str, Any] | str, *, call_id: str) -> CallAnswer:
        """Ask for a call of the tool `name`. One `call_id` is one call. `args` is an object, or its JSON text."""
        ...


def checked_call(name: Any, args: Any, call_id: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of the tool and the arguments of a call. `args` is an object or its JSON text. A gate in this
    process and one over HTTP check alike.

    Raises:
        InvalidInput: the tool (`/name`) or the call id (`/call_id`) is not valid, or the arguments (`/args`) are not a
            JSON object of at most `MAX_ARGS_BYTES` bytes.
    """
    checked_text(call_id, "/call_id", MAX_CALL_ID_CHARS)
    if not call_id.isprintable() or not call_id.isascii():
        raise InvalidInput(Problem("/call_id", "bad_call_id", "the call id is not printable ASCII", "send another"))
    tool = checked_text(name, "/name", MAX_TOOL_CHARS)
    try:
        if isinstance(args, str):
            # Models write nothing where a tool has no arguments.
            args = loads(args, max_bytes=MAX_ARGS_BYTES) if args.strip() else {}
        if not isinstance(args, Mapping):
            raise InvalidInput(Problem("/args", "no_object", "the arguments are not an object", "send them by name"))
        parsed = loads(canonical(dict(args)), max_bytes=MAX_ARGS_BYTES)
    except MalformedJson as error:
        [problem, *_] = error.problems
        # The place is in the words too: a model reads nothing else.
        place = f"at `{problem.pointer}`: " if problem.pointer else ""
        detail = f"the arguments are not JSON: {place}{problem.detail}"
        syntax_remedy = "send one JSON object, with the names of the arguments in double quotes"
        remedy = problem.remedy if problem.pointer else syntax_remedy
        raise InvalidInput(Problem(f"/args{problem.pointer}", "no_json", detail, remedy or "correct them")) from None
    except RecursionError as error:
        raise InvalidInput(Problem("/args", "no_json", f"the arguments are not JSON: {error}", "correct it")) from None
    assert isinstance(parsed, dict), "an object stays one"
    return tool, parsed


def refused_call(name: Any, fault: InvalidInput) -> dict[str, Any]:
    """Return the record of a call of the tool `name` that no gate can take, so that the end of the session counts it.
    Raises `fault` if `name` is not a valid name either.
    """
    try:
        tool = checked_text(name, "/name", MAX_TOOL_CHARS)
    except InvalidInput:
        raise fault from None
    return {"tool": tool, "args": {REFUSED_ARGS: fault.problems[0].code}}


def checked_text(value: Any, at: str, most: int, *, empty: bool = False) -> str:
    """Return `value` if it is a text of up to `most` characters. Raises `InvalidInput`, which names the place `at`."""
    if not isinstance(value, str) or len(value) > most or not (value or empty):
        detail = f"`{str(value)[:40]}` is not a text of up to {most} characters"
        raise InvalidInput(Problem(at, "bad_text", detail, "send a shorter text" if value else "send a text"))
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidInput(Problem(at, "bad_text", "the text holds half a character", "send whole characters"))
    return value
