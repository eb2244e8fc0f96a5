"""Prepares what a framework shows its model: the tools of a gate, and the texts of the gate's answers.

The APIs of models allow no dot in a tool's name, so `deploy.rollback` is shown as `deploy__rollback`. A name that has
more than 64 characters, or is the name of another tool, is cut and ends with a digest of the whole name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.artifacts import Withheld
from contextos.contracts.facts import tool_remedy
from contextos.contracts.ports.gates import CallAnswer, DescribedTool, Done, Reason, Refused, ToolGate, Waiting
from contextos.errors import InvalidInput, Problem

_CALL_MEMBERS: Final = frozenset({"name", "tool", "args", "call_id"})
"""The members of a call. The pointer of a problem with a call begins with one of them."""
_SHOWN_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """One tool as a model sees it. `tool_id` is its id in the session."""

    name: str
    tool_id: str
    description: str
    input_schema: Mapping[str, Any]


def offered_tools(gate: ToolGate) -> dict[str, OfferedTool]:
    """Return the tools of a session by the names that a model sees.

    Raises:
        InvalidInput: an adapter of the session is gone, or a name does not fit the APIs of models.
    """
    return offers_of(gate.tools, gate.described_tools())


def offers_of(tools: Sequence[str], known: Mapping[str, DescribedTool]) -> dict[str, OfferedTool]:
    """Return tools by the names that a model sees. Raises as `offered_tools`."""
    offered: dict[str, OfferedTool] = {}
    for tool_id in tools:
        if tool_id not in known:
            _refuse(tool_id, "no_adapter", "no adapter of this process has it", "open the session with its adapters")
        name = tool_id.replace(".", "__")
        if name in offered or not _SHOWN_NAME.fullmatch(name):
            name = f"{name[:51]}_{hashlib.sha256(tool_id.encode()).hexdigest()[:12]}"
        if name in offered or not _SHOWN_NAME.fullmatch(name):
            _refuse(tool_id, "bad_name", f"`{name[:80]}` is not a name for a model", "give it a short name of its own")
        offered[name] = OfferedTool(name, tool_id, known[tool_id].description, known[tool_id].input_schema)
    return offered


def function_tools(gate: ToolGate) -> list[dict[str, Any]]:
    """Return the tools of a session as OpenAI's chat API takes them; `bind_tools` of LangChain takes them too.

    Raises:
        InvalidInput: as `offered_tools`.
    """
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.input_schema)},
        }
        for tool in offered_tools(gate).values()
    ]


async def ask(gate: ToolGate, offered: Mapping[str, OfferedTool], name: Any, args: Any, call_id: Any) -> CallAnswer:
    """Ask for a call as a model made it: by the name that the model saw, with arguments as an object or as JSON text.

    The gate refuses a tool that was not offered, on record. Also refused, with a text for the model, are arguments that
    are not a JSON object, a malformed name or call id, and the id of another call.

    Raises:
        Unavailable: the gate cannot answer now; make the same call again.
    """
    tool_id = offered[name].tool_id if isinstance(name, str) and name in offered else name
    try:
        answer = await gate.call(tool_id, args, call_id=call_id)
    except InvalidInput as error:
        if not {fault.pointer.removeprefix("/").partition("/")[0] for fault in error.problems} <= _CALL_MEMBERS:
            raise
        return Refused(call_id, tuple(Reason(fault.code, fault.detail, fault.remedy) for fault in error.problems))
    return as_offered(answer, name, list(offered)) if isinstance(answer, Refused) else answer


def as_offered(answer: Refused, name: Any, shown: Sequence[str]) -> Refused:
    """Return the refusal of a call of `name` with reasons that name the tools as a model sees them (`shown`)."""
    remedy = tool_remedy(str(name), shown) if shown else ""
    return replace(
        answer,
        reasons=tuple(
            replace(reason, remedy=remedy) if remedy and reason.code == "tool_not_in_manifest" else reason
            for reason in answer.reasons
        ),
    )


def answer_text(answer: Done | Refused) -> str:
    """Return an answer as the text that a model reads. The text says if the answer is withheld, or of an earlier call.

    A text carries no artifacts, so it only names them; `Done.artifacts` has them.
    """
    if isinstance(answer, Refused):
        return str(answer)
    text = canonical(dict(answer.output or {})).decode()
    if answer.artifacts:
        names = ", ".join(f"{displayed(item.name)} ({displayed(item.media_type)})" for item in answer.artifacts)
        text = f"{text}\nmade beside it, and not shown here: {names}"
    if answer.withheld is not None and answer.error is not None:
        text = f"what the tool answered is withheld: {_cause(answer.withheld)}; {answer.error.remedy}"
    elif answer.withheld is not None:
        text = f"the call was made, and what the tool answered is withheld: {_cause(answer.withheld)}; do not repeat it"
    elif answer.error is not None:
        advice = "the same call can succeed later" if answer.error.retryable else "do not repeat the same call"
        text = f"the tool failed: {answer.error.code}: {answer.error.message}; {answer.error.remedy or advice}"
    return f"the recorded answer of an earlier call: {text}" if answer.replayed else text


def _cause(withheld: Withheld) -> str:
    return f"{withheld.code}: {withheld.detail}"


def is_error(answer: Done | Refused) -> bool:
    """Return whether an answer is a refusal or an error. If the answer of a write is withheld, it is still done."""
    return isinstance(answer, Refused) or answer.error is not None


def question_of(waiting: Waiting) -> dict[str, Any]:
    """Return the wait of a session as JSON: `waits_for`, `about` (a call id) and the `question`."""
    return {"waits_for": waiting.waits_for, "about": waiting.about, "question": dict(waiting.question)}


def _refuse(tool_id: str, code: str, detail: str, remedy: str) -> None:
    raise InvalidInput(Problem("/tools", code, f"the tool `{tool_id[:128]}`: {detail}", remedy))
