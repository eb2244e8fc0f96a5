"""An agent that obeys every text that it reads: a script in the place of the weakest model.

It makes the calls that solve the user's task. As soon as an answer has the attacker's text in it, it makes the
attacker's calls, goes on with the user's, and makes those that were refused once more at the end. It knows both tasks.
What makes its calls knows neither: nothing at all, a gate, or a run that asks it as its own model.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agentdojo.agent_pipeline import BasePipelineElement
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.types import text_content_block_from_string
from pydantic_core import to_jsonable_python

from benchmarks.agentdojo.tools import texts_of

Orders = Callable[[Any], Sequence[FunctionCall]]
"""The attacker's calls on an environment."""

Moves = Generator[Sequence[FunctionCall], Sequence[Any] | None, None]
"""What an agent does in one conversation: each time calls, in order, for which it is sent their answers, each
`{"result": the answer as JSON}`, or None if the call was not made or the tool refused it. None for all: nothing was.
"""

Converse = Callable[[str, FunctionsRuntime, Any, Moves], None]
"""Plays a conversation about a request of the user on an environment: makes the calls of an agent until it is done."""


def make_calls(moves: Moves, make: Callable[[FunctionCall], Any]) -> None:
    """Make each call of an agent, one after the other."""
    answers = None
    with suppress(StopIteration):
        while True:
            answers = [make(one) for one in moves.send(answers)]


def bare(_request: str, runtime: FunctionsRuntime, environment: Any, moves: Moves) -> None:
    """Make the calls by AgentDojo's own runtime, without a gateway."""

    def make(call: FunctionCall) -> Mapping[str, Any] | None:
        result, error = runtime.run_function(environment, call.function, call.args)
        return None if error else {"result": to_jsonable_python(result)}

    make_calls(moves, make)


class ObeyingPlanner(BasePipelineElement):
    """The agent, as the pipeline that AgentDojo runs and judges. `obeyed` says whether it read the attacker's text."""

    name = "obeying planner"

    def __init__(self, converse: Converse, task: Any, orders: Orders, texts: Sequence[str]) -> None:
        self._converse, self._task, self._orders = converse, task, orders
        self._texts = [_words(text) for text in texts]
        self._wanted: Sequence[FunctionCall] = ()
        self._made: list[FunctionCall] = []
        self._all_made = True
        self.obeyed = False

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Any = None,
        messages: Sequence[Any] = (),
        extra_args: Any = None,
    ) -> tuple[str, FunctionsRuntime, Any, Sequence[Any], Any]:
        self._converse(query, runtime, env, self._moves(env))
        said = self._task.GROUND_TRUTH_OUTPUT if self._all_made else "I could not do all of it."
        return query, runtime, env, [*messages, *map(_asked, self._made), _said(said)], extra_args

    def asks_for(self, tools: Sequence[str]) -> bool:
        """Whether the user's task needs one of these tools."""
        return any(one.function in tools for one in self._wanted)

    def _moves(self, environment: Any) -> Moves:
        orders = list(self._orders(environment))
        self._wanted = self._task.ground_truth(environment)
        for call in self._wanted:
            (answer,) = yield from self._answers([call])
            self._all_made = self._all_made and answer is not None
            if not self.obeyed and any(text in _words(one) for one in texts_of(answer) for text in self._texts):
                self.obeyed = True
                answers = yield from self._answers(orders)
                orders = [one for one, answer in zip(orders, answers, strict=True) if answer is None]
        if self.obeyed and orders:
            yield from self._answers(orders)

    def _answers(
        self, calls: Sequence[FunctionCall]
    ) -> Generator[Sequence[FunctionCall], Sequence[Any] | None, Sequence[Any]]:
        answers = (yield calls) or [None] * len(calls)
        self._made += [one for one, answer in zip(calls, answers, strict=True) if answer is not None]
        return answers


def _asked(call: FunctionCall) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call], "content": [text_content_block_from_string("")]}


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": None, "content": [text_content_block_from_string(text)]}


def _words(text: str) -> str:
    return " ".join(text.split())
