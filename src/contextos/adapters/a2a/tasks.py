"""Turns the answer of an A2A agent into a reply: the state of a task decides about the call that began it.

| state | a write | a read |
|---|---|---|
| `submitted`, `working` | asked for again, until the call's time is over | the same |
| `completed` | done | done |
| `failed`, `rejected` | the error that the agent states | the same |
| `canceled` | unknown: nobody here cancelled it, and it can have acted before | an error |
| `input_required`, `auth_required` | unknown: it can have acted, and can go on | paused: nobody answers it |

An answer that is a message, without a task, counts as `completed`. Any other state is not an answer (`BadAnswer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.adapters.a2a.definitions import SkillOperation
from contextos.adapters.foreign.replies import artifact_of, paused_task, stated_error
from contextos.contracts.envelopes.tool import AdapterReply, CapabilityDefinition
from contextos.errors import LostReply, Problem

ACTIVE: Final = frozenset({"submitted", "working"})
REFUSING: Final = frozenset({"failed", "rejected"})
INTERRUPTED: Final = {
    "canceled": "somebody canceled its task",
    "input_required": "its task asks for input, which nobody gives it",
    "auth_required": "its task asks for a login, which nobody gives it",
}

REFUSED_CALLERS: Final = frozenset({401, 403})
"""HTTP statuses of a request that was not done, because the caller is not known or not allowed."""


class AgentRefusal(Exception):
    """An agent refused a request. `code` is its JSON-RPC error, or with `over_http` its HTTP status. `said` is the text
    of the agent, which the message and the `repr` of this exception do not hold.
    """

    def __init__(self, code: int, said: str = "", *, over_http: bool = False) -> None:
        super().__init__(f"the agent refused the request with the code {code}")
        self.code, self.said, self.over_http = code, said, over_http


class BadAnswer(Exception):
    """The agent sent something that is not an answer. The text is the runtime's own."""


class UnreadableTask(Exception):
    """An answer cannot be used: `problem` says why and where. `done`: the answer says that its task was completed.
    `whole`: another attempt would get the same answer.
    """

    def __init__(self, problem: Problem, *, done: bool = False, whole: bool = True) -> None:
        super().__init__(problem.code)
        self.problem, self.done, self.whole = problem, done, whole


def says_done(result: Any) -> bool:
    """Return whether the result of a request holds a task that was completed, or a message, which is done."""
    task = result.get("task", result) if isinstance(result, Mapping) else None
    if not isinstance(task, Mapping):
        return False
    status = task.get("status")
    return "message" in task or (isinstance(status, Mapping) and status.get("state") == "TASK_STATE_COMPLETED")


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """The answer to a message: a task in a state, or a message alone, which has no `task_id` and is `completed`.

    `parts` are the parts of the task's artifacts, or of the message. `said` are the parts of the message in the task's
    status. A part is an object with `text`, with `data`, or with neither. `artifacts` are the parts of the task's
    artifacts that have a content: objects with `name`, `media_type`, `content` and `raw` (it is the base64 of bytes).
    """

    task_id: str
    context_id: str
    state: str
    parts: Sequence[Mapping[str, Any]]
    said: Sequence[Mapping[str, Any]] = ()
    artifacts: Sequence[Mapping[str, Any]] = ()


def reply_of(
    answer: AgentAnswer, operation: SkillOperation, declared: CapabilityDefinition, redact: Callable[[Any], Any]
) -> AdapterReply:
    """Return the answer as a reply, without the secrets of the connection. The Tool Gateway checks the output against
    the published schema.

    Raises:
        LostReply: a write may have happened.
        BadAnswer: the state is not one in which a task ends.
    """
    if answer.state == "completed":
        output = _read_output(answer, operation, redact)
        # Without an output the answer is withheld, and nobody reads its artifacts.
        artifacts = [artifact_of(**item, redact=redact) for item in answer.artifacts] if output is not None else []
        return AdapterReply(output=output, cost_cents=declared.cost_cents, artifacts=tuple(artifacts))
    if answer.state in REFUSING:
        message = "\n".join(redact(_texts(answer.said)))
        return stated_error(f"task_{answer.state}", message, declared)
    reason = INTERRUPTED.get(answer.state)
    if reason is None:
        raise BadAnswer("the agent answered with a task in an unknown state")
    if declared.kind == "write":
        raise LostReply(f"`{declared.name}` may have happened: {reason}; look before it is sent again")
    is_canceled = answer.state == "canceled"
    return (stated_error if is_canceled else paused_task)(answer.state, reason, declared)


def _read_output(answer: AgentAnswer, operation: SkillOperation, redact: Callable[[Any], Any]) -> dict[str, Any] | None:
    """Return the output in the form of the operation; None if that needs one object as data and there is not one."""
    if operation.output == "text":
        texts = redact(_texts(answer.parts))
        return {"texts": texts, "omitted": len(answer.parts) - len(texts)}
    objects = [part["data"] for part in answer.parts if "data" in part]
    return redact(objects[0]) if len(objects) == 1 and isinstance(objects[0], dict) else None


def _texts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]
