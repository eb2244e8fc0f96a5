"""A scenario of the playground: the texts of its form, read as what is tried, and the scenarios of the examples.

Fields of the form that are filled in replace what the text of the request says. The faults of a text are listed by the
field that has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidInput, Problem
from contextos.server.console.rendering import package_text
from contextos.server.control.sandboxes import SandboxRequest

Scenario = Mapping[str, str]
Faults = dict[str, list[Problem]]

TEXTS: Final = ("document", "request", "people", "facts", "memories", "outputs", "calls", "adapters")
"""The fields that are texts of many lines."""
REPLACED: Final[Mapping[str, tuple[str, ...]]] = {
    "mode": ("mode",),
    "safety_mode": ("runtime", "safety_mode"),
    "total_tokens": ("runtime", "total_tokens"),
    "max_tool_calls": ("runtime", "max_tool_calls"),
    "max_cost_cents": ("runtime", "max_cost_cents"),
}
"""The fields that replace a member of the request, with its place."""
NUMBERS: Final = ("total_tokens", "max_tool_calls", "max_cost_cents")
SCENARIO_FIELDS: Final = (*TEXTS, *REPLACED, "answer", "facts_of")
_PLACES: Final = {"principals": "people"}
EXAMPLES: Final[Mapping[str, str]] = {"refund": "tenant_acme_prod", "deploy": "acme"}
"""The scenarios of the examples, each with the tenant that it names."""


class Unreadable(Exception):
    """Texts of a scenario are not what they have to be. `faults` has them by field."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults


def sandbox_request(scenario: Scenario) -> SandboxRequest:
    """Return what a scenario tries. Raises `Unreadable`."""
    faults: Faults = {}
    values: dict[str, Any] = {name: _value(scenario, name, faults) for name in TEXTS if name != "document"}
    request = values.pop("request")
    if not isinstance(request, dict):
        faults.setdefault("request", [Problem("", "no_object", "a request is a JSON object", "paste one")])
    if faults:
        raise Unreadable(faults)
    body = {"document": scenario.get("document", ""), "request": _replaced(request, scenario, faults)}
    body |= {"principals": values.pop("people"), "answer": scenario.get("answer", "")}
    body["facts_of"] = scenario.get("facts_of", "").replace(",", " ").split()
    body |= {name: value for name, value in values.items() if value is not None}
    if faults:
        raise Unreadable(faults)
    try:
        return parse(SandboxRequest, canonical(body))
    except InvalidInput as error:
        raise Unreadable(placed(error.problems)) from None


def placed(problems: Sequence[Problem]) -> Faults:
    """Return the problems of what was tried, by the field that has each."""
    faults: Faults = {}
    for problem in problems:
        first, _, rest = problem.pointer.removeprefix("/").partition("/")
        field = _PLACES.get(first, first if first in SCENARIO_FIELDS else "request")
        place = f"/{rest}" if rest else ""
        faults.setdefault(field, []).append(Problem(place, problem.code, problem.detail, problem.remedy))
    return faults


def example_scenario(name: str, tenant_id: str) -> dict[str, str]:
    """Return the scenario of an example, for a tenant. Raises `KeyError` if there is none of this name."""
    shipped = EXAMPLES[name]
    read: dict[str, str] = json.loads(_example_text(name))
    return {field: text.replace(f'"{shipped}"', f'"{tenant_id}"') for field, text in read.items()} | {
        "document": read["document"].replace(f"tenant: {shipped}\n", f"tenant: {tenant_id}\n")
    }


def pretty(value: Any) -> str:
    """Return a value as JSON for people to edit: one line for each member that is not small."""
    return "\n".join(_lines(value, ""))


def _lines(value: Any, indent: str) -> list[str]:
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(flat) + len(indent) <= 76:
        return [flat]
    pairs = [(json.dumps(k, ensure_ascii=False) + ": ", v) for k, v in value.items()] if isinstance(value, dict) else []
    pairs = pairs or [("", one) for one in value]
    lines = ["{" if isinstance(value, dict) else "["]
    for number, (name, member) in enumerate(pairs):
        first, *more = _lines(member, indent + "  ")
        told = [f"  {name}{first}", *(f"  {line}" for line in more)]
        lines += [*told[:-1], told[-1] + ("," if number < len(pairs) - 1 else "")]
    return [*lines, "}" if isinstance(value, dict) else "]"]


@cache
def _example_text(name: str) -> str:
    return package_text(f"examples/{name}.json")


def _value(scenario: Scenario, name: str, faults: Faults) -> Any:
    """Return the JSON value of a text; None for an empty one, or one that is faulty."""
    text = scenario.get(name, "")
    if not text.strip():
        return None
    try:
        return loads(text)
    except InvalidInput as error:
        faults[name] = list(error.problems)
        return None


def _replaced(request: dict[str, Any], scenario: Scenario, faults: Faults) -> dict[str, Any]:
    """Return the request with the fields that are filled in."""
    replaced: dict[str, Any] = {**request}
    for name, place in REPLACED.items():
        if not (text := scenario.get(name, "").strip()):
            continue
        value: Any = text
        if name in NUMBERS:
            try:
                value = loads(text)
            except InvalidInput:
                faults[name] = [Problem("", "no_json", "this is not a number", "write digits")]
        *above, last = place
        within = replaced
        for step in above:
            member = within.get(step)
            within[step] = {**member} if isinstance(member, dict) else {}
            within = within[step]
        within[last] = value
    return replaced
