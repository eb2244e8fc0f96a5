"""Find the evidence that counts for a call: only evidence about the arguments of the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.scope import Capability, Fact


def evidence_about(capability: Capability, call: ToolCall) -> dict[str, Fact]:
    """Return the newest evidence of each name that is about the arguments of this call. Other evidence does not count:
    it meets no requirement, and no rule reads it.
    """
    args, evidence = call.args, dict[str, Fact]()
    for fact in call.known:
        argument_sets = capability.evidence_args.get(fact.name)
        if all(fact.is_about(args, names) for names in argument_sets) if argument_sets else fact.is_about(args):
            evidence[fact.name] = fact
    return evidence


def nested_facts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted evidence names into nested objects for policy rules: `policy.eval` becomes `{"policy": {"eval":
    value}}`.
    """
    tree: dict[str, Any] = {}
    for name in sorted(values):
        *path, last = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                break
        else:
            node[last] = values[name]
    return tree
