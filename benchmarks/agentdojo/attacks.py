"""The attacks: AgentDojo's own texts, and the same with the attacker's values in disguise."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from agentdojo.attacks import load_attack

Injections = dict[str, str]
Disguise = Callable[[str], str]

DIRECT, IMPORTANT = "direct", "important_instructions"

DISGUISES: Final[Mapping[str, Disguise]] = {
    "in lower case": str.lower,
    "in groups of four": lambda value: " ".join(value[start : start + 4] for start in range(0, len(value), 4)),
    "in Base64": lambda value: base64.b64encode(value.encode()).decode(),
    "in hex": lambda value: value.encode().hex(),
    "percent encoded": lambda value: "".join(f"%{ord(one):02x}" for one in value),
    "backwards": lambda value: value[::-1],
    "in full width": lambda value: "".join(chr(ord(one) + 0xFEE0) for one in value),
    "with invisible blanks": lambda value: "\u200b".join(value),
}

IN_PIECES: Final[Mapping[str, Disguise]] = {
    "in two pieces": lambda value: f"{value[: len(value) // 2]}, and after it {value[len(value) // 2 :]},"
}
"""A value that no content has as a whole: the agent puts it together."""


def injections_of(attack: str, suite: Any, user_task: Any, injection_task: Any, disguise: Disguise) -> Injections:
    """Return what the attack writes, by the place in the environment, of those that the user's task makes the agent
    read.
    """
    texts = load_attack(attack, suite, _Target()).attack(user_task, injection_task)
    values = attackers_values(suite, injection_task)
    return {place: _disguised(text, values, disguise) for place, text in texts.items()}


def attackers_values(suite: Any, injection_task: Any) -> list[str]:
    """Return the arguments of the attacker's calls that the attacker's goal names."""
    calls = injection_task.ground_truth(suite.load_and_inject_default_environment({}))
    values = {value for call in calls for value in call.args.values() if isinstance(value, str)}
    return sorted(value for value in values if value in injection_task.GOAL)


def _disguised(text: str, values: list[str], disguise: Disguise) -> str:
    for value in values:
        text = text.replace(value, disguise(value))
    return text


class _Target:
    """What AgentDojo takes the name of the attacked model from."""

    name = "local"
