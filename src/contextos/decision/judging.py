"""Ask a model to judge a plan or a finished run (model assistance of the Critic), and read its answer.

A judgement can only make a verdict stricter. Deterministic code verified the plan, or scored the run, before.
Source: How It Works, steps 4 and 6; docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.envelopes.models import ModelOperation
from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import Model, Seq, Text
from contextos.contracts.ports.models import ModelMessage
from contextos.decision.planners.model import block_lines, data_line, opening
from contextos.errors import InvalidInput, MalformedJson

VERIFY: Final[ModelOperation] = "judge.verify"
SCORE: Final[ModelOperation] = "judge.score"
MAX_JUDGEMENT_BYTES: Final = 65_536
MAX_FINDINGS: Final = 20
MAX_FINDING_CHARS: Final = 500
JudgedAs = Literal["ok", "replan", "escalate"]

JUDGEMENT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["verdict", "findings"],
    "properties": {
        "verdict": {"type": "string", "enum": list(get_args(JudgedAs))},
        "findings": {
            "type": "array",
            "maxItems": MAX_FINDINGS,
            "items": {"type": "string", "maxLength": MAX_FINDING_CHARS},
        },
    },
}
_TASKS: Final[Mapping[ModelOperation, str]] = {
    VERIFY: "Judge the plan by the rubric. `ok`: nothing speaks against it. `replan`: another plan is needed. "
    "`escalate`: a person has to look. Answer with one JSON object: the verdict, and a finding for each objection.",
    SCORE: "Judge what was done by the rubric. `ok`: nothing speaks against it. `replan` and `escalate`: a person has "
    "to look. Answer with one JSON object: the verdict, and a finding for each objection.",
}


class Judgement(Model):
    """A model's judgement of a plan or of the results of a run. Every verdict but `ok` has a finding."""

    verdict: JudgedAs
    findings: Seq[Text] = ()


def judge_messages(
    operation: ModelOperation,
    compiled: Mapping[str, Any],
    rubric: str,
    plan: Plan | None,
    results: Mapping[str, ToolResultEnvelope],
) -> tuple[ModelMessage, ...]:
    """Return the messages that ask for a judgement of a plan, or of the results of a run by step."""
    first, *_ = opening(compiled)
    system = ModelMessage("system", f"{first.text}\n\nRubric: {rubric}")
    lines = block_lines(compiled)
    if plan is not None:
        lines.append(
            data_line("plan", [{"id": step.id, "tool": step.tool, "params": step.params} for step in plan.steps])
        )
    lines += [
        data_line("result", {"step": step, "status": item.status, "output": item.output})
        for step, item in results.items()
    ]
    return system, ModelMessage("user", "\n".join([*lines, _TASKS[operation]]))


def judgement_of(text: str) -> Judgement | str:
    """Return the judgement in an answer, or what is wrong with it."""
    try:
        parsed = parse(Judgement, loads(text, max_bytes=MAX_JUDGEMENT_BYTES))
    except MalformedJson as error:
        return f"it is not one JSON object: {error}"
    except InvalidInput as error:
        return str(error.problems[0])
    if len(parsed.findings) > MAX_FINDINGS or any(len(item) > MAX_FINDING_CHARS for item in parsed.findings):
        return f"it has more than {MAX_FINDINGS} findings, or one has more than {MAX_FINDING_CHARS} characters"
    return "a verdict that is not `ok` needs a finding" if parsed.verdict != "ok" and not parsed.findings else parsed


def objections(judged: Judgement) -> tuple[Failure, ...]:
    """Return the failures of a plan that follow from a judgement; none if the judgement has no objection."""
    if judged.verdict == "ok":
        return ()
    code: Any = "must_escalate" if judged.verdict == "escalate" else "judge_objects"
    findings: Sequence[str] = judged.findings
    return tuple(Failure(code=code, detail=f"`{VERIFY}` objects: {finding}") for finding in findings)
