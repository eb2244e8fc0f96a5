"""Policies for tests: builders, the planned example, and Hypothesis strategies of valid bundles and facts."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from contextos.contracts.envelopes.policy import (
    LEVELS,
    POINTS,
    CapabilityView,
    Level,
    LeveledBundle,
    PolicyBundle,
    PolicyDecision,
)
from contextos.contracts.facts import FACTS as DECLARED_FACTS
from contextos.contracts.facts import DeclaredFact, Vocabulary
from contextos.trust.policy.policy_set import PolicySet, compile_policy

ID = "pol_0123456789abcdef"
GATES = ("GATE_FINANCE_APPROVAL", "GATE_LEGAL")
REFUND = CapabilityView("adp_payments.issue_refund", "destructive", {"kind": "write", "cost": 3})
LOOKUP = CapabilityView("adp_orders.lookup", "read_only", {"kind": "read", "cost": 1})
NOTE = CapabilityView("adp_crm.add_note", "local_write", {"kind": "write", "cost": 1})
CAPABILITIES = (REFUND, LOOKUP, NOTE)
MORE_FACTS = (
    DeclaredFact("user.tenure_days", "number", "directory", POINTS),
    DeclaredFact("tenant.tier", "string", "directory", POINTS),
    DeclaredFact("run.attempt", "number", "run", POINTS),
    DeclaredFact("history.refunds.count", "number", "run", POINTS[2:]),
    DeclaredFact("capability.cost", "number", "adapter definition", POINTS),
)
VOCABULARY = Vocabulary(
    environments=("prod", "dev"),
    declared={
        fact.path: replace(fact, points=POINTS if "compile" in fact.points else (*fact.points, *POINTS[3:]))
        for fact in (*DECLARED_FACTS, *MORE_FACTS)
    },
)
"""The vocabulary of `FACTS` below: that of the runtime and a few more, so that every root has a number to compare."""


def rule(rule_id: str, condition: Any, *, allow: bool = True, **more: Any) -> dict[str, Any]:
    """A rule as authored; keywords that `then` knows go there, all others beside it."""
    inside = {"approval_mode", "requires", "prohibits", "requires_approval_gate", "arg_constraints"}
    then = {"allow": allow} | {key: value for key, value in more.items() if key in inside}
    return {"rule_id": rule_id, "if": condition, "then": then} | {k: v for k, v in more.items() if k not in inside}


def leveled(
    *rules: dict[str, Any], level: Level = "platform", bundle_id: str = "POLICY_A", **more: Any
) -> LeveledBundle:
    raw = {"bundle_id": bundle_id, "policy_dsl": {"language": "jsonlogic", "rules": list(rules)}, **more}
    bundle = PolicyBundle.model_validate(raw)
    return LeveledBundle(level, bundle, "1.0.0", "sha256:" + "0" * 64)


def policy(*bundles: LeveledBundle, **more: Any) -> PolicySet:
    return compile_policy(
        bundles, **{"gates": GATES, "must_refuse": (), "must_escalate": (), "vocabulary": VOCABULARY, **more}
    )


def decide(
    policies: PolicySet,
    facts: dict[str, Any],
    capability: CapabilityView | None = REFUND,
    *,
    point: Any = "execute",
    granted: bool = True,
) -> PolicyDecision:
    return policies.decide(point, facts, capability=capability, granted=granted, decision_id=ID)


def var(path: str) -> dict[str, str]:
    return {"var": path}


ALLOW_AGENTS = rule("R_AGENTS", {"in": [var("user.role"), ["support_agent", "support_lead"]]})
NEEDS_IDENTITY = rule("R_IDENTITY", {"!": [{"==": [var("evidence.identity_verified"), True]}]}, allow=False)
SMALL = rule(
    "R_SMALL",
    {"<=": [var("args.amount_inr"), 3000]},
    approval_mode="delegated",
    arg_constraints={"amount_inr": {"max": 3000}},
)
LARGE = rule(
    "R_LARGE",
    {">": [var("args.amount_inr"), 3000]},
    approval_mode="destructive",
    requires_approval_gate="GATE_FINANCE_APPROVAL",
)
EXAMPLE = (ALLOW_AGENTS, NEEDS_IDENTITY, SMALL, LARGE)
"""The planned example: agents may, identity is verified, small refunds are delegated, large ones want a person."""

FACTS: dict[str, Any] = {
    "request": {
        "intent": "support.refund",
        "channel": "app_chat",
        "message": "please",
        "context": {"vip": False, "amount": 2500},
    },
    "user": {"role": "support_agent", "tenure_days": 400, "roles": ["support_agent"]},
    "agent": {"lifecycle": "active"},
    "tenant": {"tier": "gold"},
    "run": {"environment": "prod", "attempt": 1},
    "args": {"amount_inr": 2500, "currency": "INR"},
    "evidence": {"identity_verified": True, "score": 0.9},
    "history": {"refunds": {"count": 1}},
    "provenance": {"amount_inr": "request"},
}


def facts(**changes: Any) -> dict[str, Any]:
    """`FACTS` with values set at paths (`__` for a dot); `...` removes one."""
    changed = copy.deepcopy(FACTS)
    for name, value in changes.items():
        put(changed, name.replace("__", "."), value)
    return changed


def put(target: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        target = target[parent]
    if value is ...:
        del target[last]
    else:
        target[last] = value


# --- strategies ------------------------------------------------------------------------------------------

NUMBERS = (
    "args.amount_inr",
    "user.tenure_days",
    "history.refunds.count",
    "run.attempt",
    "evidence.score",
    "capability.cost",
)
TEXTS = ("user.role", "args.currency", "tenant.tier", "agent.lifecycle", "provenance.amount_inr")
FLAGS = ("evidence.identity_verified", "request.context.vip")
WORDS = ("support_agent", "INR", "gold", "active", "request", "write", "other")
KINDS = ("read", "write")
number = st.sampled_from((-1, 0, 1, 2, 3, 400, 2500, 2500.5, 3000))


def _number_leaf() -> st.SearchStrategy[Any]:
    path = st.sampled_from(NUMBERS).map(var)
    value = path | st.builds(lambda p, n: {"+": [p, n]}, path, number) | st.builds(lambda p: {"max": [p, 1]}, path)
    two = st.builds(lambda op, a, b: {op: [a, b]}, st.sampled_from((">", ">=", "<", "<=")), value, value | number)
    between = st.builds(lambda a, b, c: {"<=": [a, b, c]}, number, path, number)
    return two | between | st.builds(lambda p, n: {"==": [p, n]}, path, number)


def _optional_leaf() -> st.SearchStrategy[Any]:
    path = st.sampled_from(NUMBERS)
    defaulted = st.builds(lambda p, d, n: {"<": [{"var": [p, d]}, n]}, path, number, number)
    guarded = st.builds(
        lambda p, n, other: {"if": [{"missing": [p]}, other, {">": [var(p), n]}]}, path, number, st.booleans()
    )
    unguarded = st.builds(lambda p, n: {"or": [{">": [var(p), n]}, {"!!": [{"missing": p}]}]}, path, number)
    return defaulted | guarded | unguarded


def conditions(*, optional: bool = True) -> st.SearchStrategy[Any]:
    word = st.sampled_from(WORDS)
    text = st.sampled_from(TEXTS).map(var)
    # A rule that names a kind that no tool has is refused.
    compared = st.one_of(st.tuples(text, word), st.tuples(st.just(var("capability.kind")), st.sampled_from(KINDS)))
    leaf = st.one_of(
        _number_leaf(),
        st.builds(lambda op, two: {op: list(two)}, st.sampled_from(("==", "===", "!=", "!==")), compared),
        st.builds(lambda p, ws: {"in": [p, ws]}, text, st.lists(word, min_size=1, max_size=3)),
        st.builds(lambda w: {"in": [w, {"var": "user.roles"}]}, word),
        st.sampled_from(FLAGS).map(var),
        st.builds(lambda p, b: {"==": [p, b]}, st.sampled_from(FLAGS).map(var), st.booleans()),
        st.booleans(),
        *([_optional_leaf()] if optional else []),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda all_: {"and": all_}),
            st.lists(inner, min_size=1, max_size=3).map(lambda any_: {"or": any_}),
            inner.map(lambda one: {"!": [one]}),
            st.tuples(inner, inner, inner).map(lambda three: {"if": list(three)}),
        ),
        max_leaves=5,
    )


def paths_in(condition: Any) -> set[str]:
    """Every path that a condition names."""
    if isinstance(condition, list):
        return set().union(*map(paths_in, condition)) if condition else set()
    if not isinstance(condition, dict):
        return set()
    ((name, raw),) = condition.items()
    if name == "var":
        return {raw[0] if isinstance(raw, list) else raw}
    return set(raw if isinstance(raw, list) else [raw]) if name == "missing" else paths_in(raw)


LATE = ("args", "evidence", "history", "provenance")
_CONSTRAINTS = ({"max": 3000}, {"min": 1, "required": True}, {"enum": ["INR"]}, {"pattern": "[A-Z]{3}"})


@st.composite
def rules(draw: st.DrawFn, rule_id: str, *, optional: bool = True, passable: bool = True) -> dict[str, Any]:
    condition = draw(conditions(optional=optional))
    paths = paths_in(condition)
    applies: dict[str, str] = {}
    if draw(st.integers(0, 2)) == 0:
        applies["intent"] = draw(st.sampled_from(("support.refund", "support.refund", "sales.quote")))
    if draw(st.integers(0, 3)) == 0:
        applies["capability"] = draw(st.sampled_from(CAPABILITIES)).capability_id
    if draw(st.integers(0, 4)) == 0:
        applies["environment"] = draw(st.sampled_from(("prod", "dev")))
    if draw(st.integers(0, 4)) == 0:
        early = not any(path.split(".")[0] in LATE for path in paths)
        applies["point"] = draw(st.sampled_from(POINTS if early else POINTS[2:]))
    about_a_call = applies.get("point") not in ("memory", "model")
    binds = applies.get("point") != "model"
    if not about_a_call:
        applies.pop("capability", None)
    more: dict[str, Any] = {"facts": {"user.roles": "array"}} if "user.roles" in paths else {}
    if binds and draw(st.integers(0, 3)) == 0:
        more["requires_approval_gate"] = draw(st.sampled_from(GATES))
    if about_a_call and draw(st.integers(0, 3)) == 0:
        bound = draw(st.sampled_from(_CONSTRAINTS))
        more["arg_constraints"] = {"amount_inr": bound}
    if "arg_constraints" in more and applies.get("point") in (None, "execute"):
        more["approval_mode"] = draw(st.sampled_from(("read_only", "local_write", "delegated", "destructive")))
    if binds and draw(st.integers(0, 3)) == 0:
        more["requires"] = draw(st.lists(st.sampled_from(("order_lookup", "idv")), min_size=1, max_size=2))
    if about_a_call and draw(st.integers(0, 7)) == 0 and "capability" not in applies:
        more["prohibits"] = [draw(st.sampled_from(CAPABILITIES)).capability_id]
    if passable and draw(st.integers(0, 5)) == 0:
        more["non_enforcing"] = True
    return rule(rule_id, condition, allow=draw(st.integers(0, 4)) > 0, applies_to=applies, **more)


@st.composite
def bundle_sets(
    draw: st.DrawFn, *, optional: bool = True, passable: bool = True, observe: bool = True
) -> list[LeveledBundle]:
    made, number_of = [], 0
    for index in range(draw(st.integers(0, 3))):
        members = []
        for _ in range(draw(st.integers(1, 3))):
            number_of += 1
            members.append(draw(rules(f"R_{number_of}", optional=optional, passable=passable)))
        level: Level = "platform" if index == 0 else draw(st.sampled_from(LEVELS))
        watching = observe and level != "platform" and draw(st.booleans())
        made.append(
            leveled(
                *members,
                level=level,
                bundle_id=f"POLICY_{index}",
                priority=draw(st.integers(0, 2)),
                accept_asserted=["request.context.vip"],
                mode="observe" if watching else "enforce",
            )
        )
    return made


WRONG = st.sampled_from((None, "4000", "true", "", 4000, 0, True, False, [], ["x"], [None], {}, {"x": 1}, 1e21))


@st.composite
def broken_facts(draw: st.DrawFn) -> dict[str, Any]:
    """Facts of which each may be right, other, missing, null or of another type."""
    made = copy.deepcopy(FACTS)
    paths = [
        p
        for p in (*NUMBERS, *TEXTS, *FLAGS, "user.roles", "request.intent", "run.environment")
        if not p.startswith("capability")
    ]
    for path in draw(st.lists(st.sampled_from(paths), max_size=3, unique=True)):
        put(made, path, draw(st.just(...) | WRONG))
    for root in draw(st.lists(st.sampled_from(LATE), max_size=1)):
        made[root] = draw(st.sampled_from((None, "x", {})))
        if draw(st.booleans()):
            del made[root]
    return made
