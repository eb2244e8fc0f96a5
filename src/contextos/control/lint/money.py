"""Lints money: each write that moves an amount is counted by a sum that a rule reads, or says why no sum limits it.

The names of arguments show which of them are amounts. That can be wrong, so only lint asks, and no run is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.policy import PolicyBundle
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.control.artifacts import MergedArtifacts
from contextos.control.lint.bounds import asks_nobody
from contextos.errors import Problem

_AMOUNTS: Final = frozenset(("amount", "money", "price"))
"""Words in the name of an argument that show that it is an amount, whatever its type."""

_UNITS: Final = (
    *("cent", "cents", "dollar", "dollars", "euro", "euros", "paise", "pence", "penny", "rupee", "rupees"),
    *("chf", "cny", "eur", "gbp", "inr", "jpy", "usd"),
)
_NUMBERS: Final = _AMOUNTS.union(
    _UNITS,
    ("balance", "cash", "charge", "cost", "credit", "debit", "deposit", "fee", "pay", "payment", "payout"),
    ("refund", "salary", "sum", "tip", "total", "wage"),
)
"""Words in the name of a number that show that it is an amount."""

EACH_IS_ASKED: Final = "a person is asked about each call"
"""The text in `without_sum` of a tool in a draft that asks about each call. It counts only while that is true."""

_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def lint_money(
    merged: MergedArtifacts, tools: Mapping[str, CapabilityDefinition], above: Iterable[PolicyBundle]
) -> Iterator[Problem]:
    """Yield a problem for each permitted write of money that no sum counts and that does not say why. `above` are the
    bundles in force above the pack.
    """
    bundles = [*(leveled.bundle for leveled in merged.bundles.values()), *above]
    counted = set(_summed_tools(bundle for bundle in bundles if bundle.mode == "enforce"))
    permissions = merged.pack.tooling_layer.permissions
    explained = {f"{item.adapter_id}.{item.capability}" for item in permissions if (item.without_sum or "").strip()}
    asking = {f"{item.adapter_id}.{item.capability}" for item in permissions if item.without_sum == EACH_IS_ASKED}
    explained -= asking.intersection(_unasked_tools(bundles, tools))
    for index, permission in enumerate(permissions):
        name = f"{permission.adapter_id}.{permission.capability}"
        amounts = money_of(tools[name]) if name in tools and permission.allow else []
        if amounts and name not in counted | explained:
            explained.add(name)
            detail = f"`{name}` moves money (`{amounts[0]}`), and no sum that a rule reads counts it"
            remedy = "add it to a sum in a policy of the tenant (`history`), or say in `without_sum` why none limits it"
            place = pointer(("tooling_layer", "permissions", index, "capability"))
            yield Problem(place, "money_without_sum", detail, remedy)


def money_of(tool: CapabilityDefinition) -> list[str]:
    """Return the arguments of a write that are amounts of money, as their names say."""
    arguments = tool.input_schema.get("properties", {}).items() if tool.kind == "write" else ()
    return [
        name
        for name, schema in arguments
        if not {word.lower() for word in _WORDS.findall(name)}.isdisjoint(_NUMBERS if _is_number(schema) else _AMOUNTS)
    ]


def _is_number(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    declared = schema.get("type")
    parts = (*schema.get("anyOf", ()), *schema.get("oneOf", ()))
    types = declared if isinstance(declared, list) else [declared]
    return "number" in types or "integer" in types or any(map(_is_number, parts))


def _summed_tools(bundles: Iterable[PolicyBundle]) -> Iterator[str]:
    """Yield the tools that are counted by a sum, if a rule about the tool reads the sum."""
    bundle_list = list(bundles)
    sums = {name: fact for bundle in bundle_list for name, fact in bundle.history.items() if fact.of is not None}
    for bundle in bundle_list:
        for rule in bundle.policy_dsl.rules:
            tool = rule.applies_to.capability or ""
            read = (path.partition(".")[2] for path in _read_paths(rule.condition) if path.startswith("history."))
            if any(name in sums and tool in sums[name].counted() for name in read):
                yield tool


def _unasked_tools(bundles: Iterable[PolicyBundle], tools: Mapping[str, CapabilityDefinition]) -> Iterator[str]:
    """Yield the tools for which a rule allows calls without asking anybody."""
    for rule in (rule for bundle in bundles for rule in bundle.policy_dsl.rules):
        target = rule.applies_to.capability
        for name in tools if target is None else [target] if target in tools else ():
            if asks_nobody(rule, tools[name]):
                yield name


def _read_paths(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    for child in node.values() if isinstance(node, Mapping) else node if isinstance(node, list | tuple) else ():
        yield from _read_paths(child)
