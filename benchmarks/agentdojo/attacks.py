"""The attacks: the texts that AgentDojo ships, and one attacker who has read the labels, the person and the runtime."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentdojo.attacks import load_attack
from agentdojo.attacks.attack_registry import ATTACKS
from agentdojo.functions_runtime import FunctionCall

from benchmarks.agentdojo.people import strings

SHIPPED: Final = tuple(name for name, one in ATTACKS.items() if name != "manual" and not one.is_dos_attack)
"""All but the one that asks at a keyboard, and those whose goal is that the agent stops: a script that goes on is not
stopped, and a gateway makes no agent go on.
"""
READER: Final = "has read the pack"


class Attacker:
    """One attack on a suite. It places texts where the user's task makes the agent read them, and gives the orders that
    an agent follows who obeys them.

    The reader of the pack writes each of its values in Base85, which the runtime does not recognise, so that no content
    states them. Its orders send each value through a read that takes it and may answer it, and then read everything
    that is trusted, before they make the calls.
    """

    def __init__(self, name: str, suite: Any, definitions: Mapping[str, Mapping[str, Any]]) -> None:
        self._reads_pack = name == READER
        self._suite = suite
        self._attack = load_attack("direct" if self._reads_pack else name, suite, _Target())
        reads = [one for one in definitions.values() if one["kind"] == "read"]
        self._trusted = [one["name"] for one in reads if one["output_integrity"] == "trusted"]
        self._echo = next((one for one in map(_echoed, reads) if one), None)

    def texts(self, user_task: Any, injection_task: Any) -> dict[str, str]:
        texts: dict[str, str] = self._attack.attack(user_task, injection_task)
        if not self._reads_pack:
            return texts
        hidden = {one: base64.b85encode(one.encode()).decode() for one in self._values(injection_task)}
        for value in sorted(hidden, key=len, reverse=True):
            texts = {place: text.replace(value, hidden[value]) for place, text in texts.items()}
        return texts

    def orders(self, injection_task: Any, environment: Any) -> Sequence[FunctionCall]:
        calls: list[FunctionCall] = list(injection_task.ground_truth(environment))
        if not self._reads_pack:
            return calls
        values = self._values(injection_task)[:2] if self._echo else []
        first = [FunctionCall(function=self._echo[0], args={self._echo[1]: value}) for value in values if self._echo]
        return [*first, *(FunctionCall(function=one, args={}) for one in self._trusted[:2]), *calls]

    def _values(self, injection_task: Any) -> list[str]:
        """The texts among the arguments of the attacker's calls that the attacker's goal names."""
        calls = injection_task.ground_truth(self._suite.load_and_inject_default_environment({}))
        found = dict.fromkeys(one for call in calls for one in strings(dict(call.args)))
        return [one for one in found if len(one) > 1 and one in injection_task.GOAL]


def _echoed(definition: Mapping[str, Any]) -> tuple[str, str] | None:
    """The name and the only required argument of a read that carries nothing out, if that argument is a text."""
    schema = definition["input_schema"]
    required = schema.get("required", [])
    if definition["destinations"] or len(required) != 1 or schema["properties"][required[0]].get("type") != "string":
        return None
    return definition["name"], required[0]


class _Target:
    """What AgentDojo takes the name of the attacked model from."""

    name = "local"
