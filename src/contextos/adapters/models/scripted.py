"""`ScriptedModels`: the `ModelProvider` whose answers a script lists in order, for tests and the demo.

A script is a JSON object: by the name of a model, a list of answers. An answer has `text` (any JSON; what is not a
string is sent as JSON) or `calls` (each `{tool, args}`), and can have `outcome`, `usage` (counts by kind) and
`retry_after_ms`. The answer to a call that embeds has `vectors`. A call past the end of the list is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.ports.models import ModelCall, ModelReply, ModelUsage, OnText, ProposedCall
from contextos.errors import InvalidInput, Problem


class ScriptedModels:
    """Answers from a script. `asked` has each call in order.

    Its answers count for nothing, so a record names it as unsafe.
    """

    unsafe = ("unsafe_scripted_models",)

    def __init__(self, script: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        for name, answers in script.items():
            if not isinstance(answers, list | tuple) or not all(isinstance(answer, Mapping) for answer in answers):
                detail = f"the answers of `{name[:80]}` are not a list of objects"
                raise InvalidInput(Problem(f"/{name[:80]}", "bad_script", detail, "write `[{text: ...}, ...]`"))
        self._script, self._next = script, dict.fromkeys(script, 0)
        self.asked: list[ModelCall] = []

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        """Return the next answer of the script for the model of the call."""
        self.asked.append(call)
        model = call.profile.model
        # In another process, the earlier answers in the conversation show which answer is the next.
        answered_before = sum(message.role == "assistant" for message in call.messages)
        answers, number = self._script.get(model, ()), max(self._next.get(model, 0), answered_before)
        if number >= len(answers):
            return ModelReply("unknown_model", billed=False, detail=f"the script has {number} answers of this model")
        self._next[model] = number + 1
        answer = answers[number]
        value = answer.get("text", "")
        text = value if isinstance(value, str) else canonical(value).decode()
        if on_text is not None:
            on_text(text)
        calls = [
            ProposedCall(planned.get("call_id", f"call_{number}_{index}"), planned["tool"], planned.get("args", {}))
            for index, planned in enumerate(answer.get("calls", ()))
        ]
        usage = answer.get("usage", {"input": 100, "output": 20})
        return ModelReply(
            answer.get("outcome", "answered"),
            text,
            tuple(calls),
            model,
            f"scripted_{number}",
            None if usage is None else ModelUsage(usage),
            retry_after_ms=answer.get("retry_after_ms", 0),
            billed=answer.get("billed", True),
            vectors=tuple(map(tuple, answer.get("vectors", ()))),
        )
