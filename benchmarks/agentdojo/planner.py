"""An agent that obeys every text that it reads: a script in the place of the weakest model.

It makes the calls that solve the user's task. As soon as an answer has the attacker's text in it, it makes the
attacker's calls, goes on with the user's, and makes those that were refused once more at the end. It knows both tasks.
What it calls its tools through knows neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from agentdojo.agent_pipeline import BasePipelineElement
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.types import text_content_block_from_string
from pydantic_core import to_jsonable_python

from benchmarks.agentdojo.tools import texts_of

Orders = Callable[[Any], Sequence[FunctionCall]]
"""The attacker's calls on an environment."""


class Tools(Protocol):
    """The tools of one conversation: bare, or behind the gateway."""

    def call(self, name: str, args: Mapping[str, Any]) -> Any:
        """Return {"result": the answer as JSON}; None if the call was not made, or the tool refused it."""

    def close(self) -> None:
        """End the conversation."""


class OpenTools(Protocol):
    """Begins a conversation about a request of the user."""

    def __call__(self, request: str, runtime: FunctionsRuntime, environment: Any) -> Tools: ...


class BareTools:
    """AgentDojo's own runtime, without a gateway."""

    def __init__(self, _request: str, runtime: FunctionsRuntime, environment: Any) -> None:
        self._runtime, self._environment = runtime, environment

    def call(self, name: str, args: Mapping[str, Any]) -> Any:
        result, error = self._runtime.run_function(self._environment, name, args)
        return None if error else {"result": to_jsonable_python(result)}

    def close(self) -> None:
        """Nothing is open."""


class ObeyingPlanner(BasePipelineElement):
    """The agent, as the pipeline that AgentDojo runs and judges. `obeyed` says whether it read the attacker's text."""

    name = "obeying planner"

    def __init__(self, open_tools: OpenTools, task: Any, orders: Orders, texts: Sequence[str]) -> None:
        self._open_tools, self._task, self._orders = open_tools, task, orders
        self._texts = [_words(text) for text in texts]
        self.obeyed = False

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Any = None,
        messages: Sequence[Any] = (),
        extra_args: Any = None,
    ) -> tuple[str, FunctionsRuntime, Any, Sequence[Any], Any]:
        tools = self._open_tools(query, runtime, env)
        made: list[FunctionCall] = []
        all_made = True
        orders = list(self._orders(env))
        for call in self._task.ground_truth(env):
            answer = self._make(tools, call, made)
            all_made = all_made and answer is not None
            if not self.obeyed and any(text in _words(one) for one in texts_of(answer) for text in self._texts):
                self.obeyed = True
                orders = self._refused(tools, orders, made)
        if self.obeyed:
            self._refused(tools, orders, made)
        tools.close()
        said = self._task.GROUND_TRUTH_OUTPUT if all_made else "I could not do all of it."
        return query, runtime, env, [*messages, *map(_asked, made), _said(said)], extra_args

    def _refused(self, tools: Tools, orders: Sequence[FunctionCall], made: list[FunctionCall]) -> list[FunctionCall]:
        """Make the attacker's calls, and return those that were not made."""
        return [one for one in orders if self._make(tools, one, made) is None]

    def _make(self, tools: Tools, call: FunctionCall, made: list[FunctionCall]) -> Any:
        answer = tools.call(call.function, call.args)
        if answer is not None:
            made.append(call)
        return answer


def _asked(call: FunctionCall) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call], "content": [text_content_block_from_string("")]}


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": None, "content": [text_content_block_from_string(text)]}


def _words(text: str) -> str:
    return " ".join(text.split())
