"""Naive versions of what must never be wrong, written from the specification alone. Slow and obvious on purpose.

Policy: docs/design/contracts.md, "Policy" and "Approval modes". It shares no code with `contextos.trust`, has its own
JsonLogic, asks every rule of every bundle one at a time, and takes bundles that lint accepts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

MODES = ("read_only", "local_write", "network", "delegated", "destructive")
LEVEL = {"platform": 0, "tenant": 1, "pack": 2}
ABSENT = object()


class Undecided(Exception):
    """The rule reads something that is not there."""


def policy_decision(
    bundles: list[tuple[str, dict[str, Any]]],
    point: str,
    facts: dict[str, Any],
    capability: dict[str, Any] | None,
    granted: bool,
    must_refuse: list[Any] = [],  # noqa: B006
    must_escalate: list[Any] = [],  # noqa: B006
) -> dict[str, Any]:
    """What an enforcement point must answer. `bundles` are (level, wire form); `capability` has id, mode and facts."""
    if capability is not None:
        facts = {**facts, "capability": capability["facts"]}
    matched, undecided, passed_over, observed = [], [], [], []
    for bundle, rule in _ordered(bundles):
        answer = _ask(rule, point, facts, capability)
        if answer is False:
            continue
        if bundle.get("mode") == "observe":
            observed.append(rule["rule_id"])
        elif answer is True:
            matched.append(rule)
        elif rule.get("non_enforcing"):
            passed_over.append(rule["rule_id"])
        else:
            undecided.append({"rule_id": rule["rule_id"], "facts": answer})
    guards = {
        name: [entry for entry in entries if _guard_is_active(entry, matched, undecided, point, facts, capability)]
        for name, entries in (("must_refuse", must_refuse), ("must_escalate", must_escalate))
    }
    unsure_guard = any(
        isinstance(entry, dict) and isinstance(_ask({"if": entry}, point, facts, capability), list)
        for entry in [*must_refuse, *must_escalate]
    )
    denying = [rule["rule_id"] for rule in matched if not rule["then"]["allow"]]
    mode = _mode(matched, capability)
    gates = _all(rule["then"].get("requires_approval_gate") for rule in matched)
    prohibits = _all(name for rule in matched for name in rule["then"].get("prohibits", ()))
    reason = _reason(
        guards["must_refuse"],
        denying,
        undecided or unsure_guard,
        prohibits,
        mode,
        gates,
        point,
        capability,
        granted,
        matched,
    )
    if reason == "prohibited":
        denying = [rule["rule_id"] for rule in matched if capability["id"] in rule["then"].get("prohibits", ())]
    return {
        "allowed": reason.startswith("allowed"),
        "reason": reason,
        "effective_approval_mode": mode,
        "gates": gates,
        "prohibits": prohibits,
        "requires": _all(name for rule in matched for name in rule["then"].get("requires", ())),
        "arg_constraints": _constraints(matched),
        "matched": [rule["rule_id"] for rule in matched],
        "denying": denying,
        "undecided": undecided,
        "passed_over": passed_over,
        "observed": observed,
        "must_refuse": len(guards["must_refuse"]),
        "must_escalate": len(guards["must_escalate"]),
    }


def _ordered(bundles: list[tuple[str, dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(priority descending, bundle_id, rule_id)."""
    pairs = [(bundle, rule) for _, bundle in bundles for rule in bundle["policy_dsl"]["rules"]]
    return sorted(pairs, key=lambda pair: (-pair[0].get("priority", 0), pair[0]["bundle_id"], pair[1]["rule_id"]))


def _all(names: Any) -> list[str]:
    return list(dict.fromkeys(name for name in names if name))


def _constraints(matched: list[dict[str, Any]]) -> dict[str, list[Any]]:
    united: dict[str, list[Any]] = {}
    for rule in matched:
        for name, constraint in rule["then"].get("arg_constraints", {}).items():
            if constraint not in united.setdefault(name, []):
                united[name].append(constraint)
    return united


def _mode(matched: list[dict[str, Any]], capability: dict[str, Any] | None) -> str | None:
    """Starts at the declared one; of several matched modes the strictest. What is not enforced can only raise it."""
    if capability is None:
        return None
    stating = [rule for rule in matched if rule["then"].get("approval_mode")]
    firm = [rule["then"]["approval_mode"] for rule in stating if not rule.get("non_enforcing")]
    soft = [rule["then"]["approval_mode"] for rule in stating if rule.get("non_enforcing")]
    start = max(firm, key=MODES.index) if firm else capability["mode"]
    return max([start, *soft], key=MODES.index)


def _reason(refusing, denying, undecided, prohibits, mode, gates, point, capability, granted, matched) -> str:
    if refusing:
        return "must_refuse"
    if denying:
        return "denied_by_rule"
    if undecided:
        return "indeterminate"
    if capability is not None:
        if capability["id"] in prohibits:
            return "prohibited"
        if MODES.index(mode) > MODES.index(capability["mode"]):
            return "mode_above_declared"
    if any(rule["then"]["allow"] and not rule.get("non_enforcing") for rule in matched):
        return "gate_missing" if mode == "destructive" and not gates and point == "execute" else "allowed"
    if capability is not None and capability["mode"] == "read_only" and granted:
        return "allowed_by_default"
    return "no_rule_allows"


def _guard_is_active(entry, matched, undecided, point, facts, capability) -> bool:
    if isinstance(entry, str):
        return entry in [rule["rule_id"] for rule in matched] or entry in [one["rule_id"] for one in undecided]
    return _ask({"if": entry}, point, facts, capability) is not False


# --- one rule --------------------------------------------------------------------------------------------


def _ask(rule: dict[str, Any], point: str, facts: dict[str, Any], capability: dict[str, Any] | None) -> Any:
    """True, False, or the list of facts for which nobody can say."""
    applies = rule.get("applies_to", {})
    uses = _uses(rule["if"], "boolean")
    if applies.get("point") not in (None, point) or not _in_time(applies.get("point"), uses, point, facts):
        return False
    if applies.get("capability") and (capability is None or applies["capability"] != capability["id"]):
        return False
    unknown = []
    for name, path in (("intent", "request.intent"), ("environment", "run.environment")):
        if applies.get(name) is None:
            continue
        value = _look(facts, path)
        if not isinstance(value, str) or not value:
            unknown.append(path)
        elif value != applies[name]:
            return False
    if unknown:
        return unknown
    asked = {path for path, _, how in uses if how == "missing"}
    bad = set()
    for path, kind, how in uses:
        value = _look(facts, path)
        if value is ABSENT and (how == "optional" or path in asked):
            continue
        if not _is(value, kind):
            bad.add(path)
    if bad:
        return sorted(bad)
    try:
        return _value(rule["if"], facts)
    except Undecided:
        return sorted(path for path in {path for path, _, _ in uses} if _look(facts, path) is ABSENT)


def _in_time(named: str | None, uses: list[tuple[str, str, str]], point: str, facts: dict[str, Any]) -> bool:
    """From the first point at which all roots of its facts exist."""
    late = {path for path, _, _ in uses if path.split(".")[0] in ("args", "evidence", "history", "provenance")}
    if point == "execute" or named:
        return True
    if point == "compile":
        return not late
    if point == "plan":  # an argument is there if it is literal
        args = facts.get("args")
        return all(path.startswith("args.") and isinstance(args, dict) and path.split(".")[1] in args for path in late)
    if any(path.startswith("capability.") for path, _, _ in uses) and "capability" not in facts:
        return False
    return all(path.split(".")[0] in facts for path in late)


def _uses(node: Any, kind: str) -> list[tuple[str, str, str]]:
    """(path, type that is needed there, how it is read) of everything a tree reads."""
    if not isinstance(node, dict):
        return []
    ((name, raw),) = node.items()
    parts = raw if isinstance(raw, list) else [raw]
    if name == "var":
        return [(parts[0], kind, "plain" if len(parts) == 1 else "optional")]
    if name == "missing":
        return [(path, "present", "missing") for path in parts]
    if name in ("<", "<=", ">", ">=", "+", "max"):
        kinds = ["number"] * len(parts)
    elif name in ("==", "===", "!=", "!=="):
        kinds = [_kind_of(parts[1])] * 2
    elif name == "in":
        kinds = ["string", "strings"]
    elif name == "if":
        kinds = ["boolean", kind, kind]
    else:
        kinds = ["boolean"] * len(parts)
    return [use for part, needed in zip(parts, kinds, strict=True) for use in _uses(part, needed)]


def _kind_of(literal: Any) -> str:
    return "boolean" if isinstance(literal, bool) else "string" if isinstance(literal, str) else "number"


def _is(value: Any, kind: str) -> bool:
    if value is ABSENT or value is WRONG_PARENT or value is None:
        return False
    if kind == "boolean":
        return value is True or value is False
    if kind == "number":
        return type(value) in (int, float) and abs(value) < 2**53
    if kind == "string":
        return type(value) is str
    if kind == "strings":
        return type(value) is list and all(type(one) is str for one in value)
    return True


WRONG_PARENT = object()


def _look(facts: Any, path: str) -> Any:
    for step in path.split("."):
        if not isinstance(facts, dict):
            return WRONG_PARENT
        if step not in facts:
            return ABSENT
        facts = facts[step]
    return facts


def _value(node: Any, facts: dict[str, Any]) -> Any:
    """JsonLogic over operands of the right type; `and`, `or` and `if` look no further than they must."""
    if not isinstance(node, dict):
        return node
    ((name, raw),) = node.items()
    parts = raw if isinstance(raw, list) else [raw]
    if name == "var":
        found = _look(facts, parts[0])
        if found is ABSENT and len(parts) == 1:
            raise Undecided
        return parts[1] if found is ABSENT else found
    if name == "missing":
        return [path for path in parts if _look(facts, path) in (ABSENT, "")]
    if name == "if":
        return _value(parts[1] if _value(parts[0], facts) else parts[2], facts)
    if name == "and":
        return all(_value(part, facts) for part in parts)
    if name == "or":
        return any(_value(part, facts) for part in parts)
    values = [_value(part, facts) for part in parts]
    if name in ("==", "==="):
        return values[0] == values[1]
    if name in ("!=", "!=="):
        return values[0] != values[1]
    if name == "in":
        return values[0] in values[1]
    if name == "<":
        return all(a < b for a, b in pairwise(values))
    if name == "<=":
        return all(a <= b for a, b in pairwise(values))
    return {
        ">": lambda: values[0] > values[1],
        ">=": lambda: values[0] >= values[1],
        "!": lambda: not values[0],
        "!!": lambda: bool(values[0]),
        "+": lambda: sum(values),
        "max": lambda: max(values),
    }[name]()
