"""What a declaration says about a call is what the rules of its expansion decide."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.policy import CapabilityView
from contextos.errors import InvalidArtifact
from tests.unit.packs.deploying import INTENT, PLAN, decided, expanded, policies

CI = {"ci": {"green": True, "blast_radius": 3}}
ROLLBACK = {"service": "api", "env": "prod"}
SCALE = {"service": "api", "replicas": 3}


def verdict(tool: str, args: dict[str, Any], evidence: dict[str, Any] | None = None, **fields: Any) -> tuple[Any, ...]:
    """Whether the call is allowed, in which mode, and who is asked."""
    role = fields.pop("role", "deployer")
    expansion = expanded(**fields)
    decision = decided(
        policies(expansion),
        tool,
        args,
        CI if evidence is None else evidence,
        role=role,
        write=tool != "deploy.ci_status",
    )
    gates = {gate.gate_id: gate.required_approver_role for gate in expansion.pack.policy_layer.approval_gates}
    return decision.allowed, decision.effective_approval_mode, tuple(gates[gate] for gate in decision.gates)


def test_a_write_is_asked_of_the_approver() -> None:
    assert verdict("deploy.rollback", ROLLBACK) == (True, "destructive", ("approver",))
    assert verdict("deploy.scale", SCALE, approver="lead") == (True, "destructive", ("lead",))


def test_who_is_not_named_may_not() -> None:
    assert not verdict("deploy.rollback", ROLLBACK, role="intern")[0]
    assert not verdict("deploy.ci_status", {"service": "api"}, role="intern")[0]
    intents = {"deploy.change": {**INTENT, "who": ["sre"]}}
    assert not verdict("deploy.rollback", ROLLBACK, intents=intents)[0]
    assert verdict("deploy.rollback", ROLLBACK, intents=intents, role="sre")[0]


def test_the_first_entry_that_is_true_asks() -> None:
    ask = [
        {"role": "lead", "when": "evidence.ci.blast_radius > 20"},
        {"role": "peer", "when": 'args.env == "staging"', "tools": ["rollback"]},
        {"role": "anyone"},
    ]
    wide = {"ci": {"green": True, "blast_radius": 21}}
    staging = {**ROLLBACK, "env": "staging"}
    assert verdict("deploy.rollback", staging, wide, ask=ask)[2] == ("lead",)
    assert verdict("deploy.rollback", staging, ask=ask)[2] == ("peer",)
    assert verdict("deploy.rollback", ROLLBACK, ask=ask)[2] == ("anyone",)
    assert verdict("deploy.scale", SCALE, ask=ask)[2] == ("anyone",)
    assert not verdict("deploy.scale", SCALE, {}, ask=ask)[0], "without the evidence nobody knows who is asked"


def test_the_entries_of_an_intent_come_before_those_of_the_pack() -> None:
    intents = {"deploy.change": {**INTENT, "ask": [{"role": "sre"}]}}
    assert verdict("deploy.scale", SCALE, intents=intents, ask=[{"role": "lead"}])[2] == ("sre",)


def test_a_denial_wins_and_a_missing_fact_denies() -> None:
    deny = [{"when": "evidence.ci.green == False", "because": "the build is red"}]
    red = {"ci": {"green": False, "blast_radius": 3}}
    assert verdict("deploy.rollback", ROLLBACK, deny=deny)[0]
    assert not verdict("deploy.rollback", ROLLBACK, red, deny=deny)[0]
    assert not verdict("deploy.rollback", ROLLBACK, {}, deny=deny)[0]
    assert verdict("deploy.ci_status", {"service": "api"}, {}, deny=deny)[0], (
        "it is about writes unless it names others"
    )
    about_reads = [{"when": 'args.service == "secret"', "tools": ["ci_status"]}]
    assert not verdict("deploy.ci_status", {"service": "secret"}, {}, deny=about_reads)[0]


def test_what_is_within_its_bounds_is_asked_of_nobody() -> None:
    auto = [
        {"tools": ["scale"], "bounds": {"replicas": {"min": 1, "max": 5}}, "when": "evidence.ci.green == True"},
        {"tools": ["deploy.rollback"], "bounds": {"env": {"enum": ["staging"]}}, "mode": "local_write"},
    ]
    assert verdict("deploy.scale", SCALE, auto_approve=auto) == (True, "delegated", ())
    assert verdict("deploy.scale", {**SCALE, "replicas": 6}, auto_approve=auto)[2] == ("approver",)
    assert verdict("deploy.scale", {**SCALE, "replicas": 0}, auto_approve=auto)[2] == ("approver",)
    red = {"ci": {"green": False, "blast_radius": 3}}
    assert verdict("deploy.scale", SCALE, red, auto_approve=auto)[2] == ("approver",)
    staging = {**ROLLBACK, "env": "staging"}
    assert verdict("deploy.rollback", staging, auto_approve=auto) == (True, "local_write", ())
    ask = [{"role": "lead", "when": "args.replicas > 2", "tools": ["scale"]}]
    assert verdict("deploy.scale", SCALE, auto_approve=auto, ask=ask)[2] == ("lead",), "an entry that asks wins"


@pytest.mark.parametrize(
    ("when", "inside", "outside"),
    [
        ("args.replicas <= 3", (0, 3), (4,)),
        ("2 < args.replicas and args.replicas < 5", (3, 4), (2, 5)),
        ("3 >= args.replicas >= 2", (2, 3), (1, 4)),
        ("args.replicas == 3", (3,), (2, 4)),
        ("args.replicas in [1, 3]", (1, 3), (2,)),
        ("args.service == 'api' and evidence.ci.green == True", (0, 99), ()),
    ],
)
def test_a_condition_alone_is_a_bound_where_it_limits_an_argument(
    when: str, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    auto = [{"when": when, "tools": ["scale"]}]
    for replicas in inside:
        said = verdict("deploy.scale", {**SCALE, "replicas": replicas}, auto_approve=auto)
        assert said == (True, "delegated", ()), replicas
    for replicas in outside:
        assert verdict("deploy.scale", {**SCALE, "replicas": replicas}, auto_approve=auto)[2] == ("approver",), replicas
    if "service" in when:
        assert verdict("deploy.scale", {**SCALE, "service": "db"}, auto_approve=auto)[2] == ("approver",)
        about_all = [{"when": when}]
        assert verdict("deploy.scale", SCALE, auto_approve=about_all)[2] == ()
        assert verdict("deploy.rollback", ROLLBACK, auto_approve=about_all)[2] == ()


def test_a_free_argument_beside_a_condition_that_bounds_another_is_free() -> None:
    auto = [{"bounds": {"service": {"any": True}}, "when": "args.replicas <= 3", "tools": ["scale"]}]
    assert verdict("deploy.scale", {**SCALE, "service": "db"}, auto_approve=auto)[2] == ()
    assert verdict("deploy.scale", {**SCALE, "replicas": 4}, auto_approve=auto)[2] == ("approver",)


def test_evidence_of_conditions_is_required() -> None:
    expansion = expanded(deny=[{"when": "evidence.ci.green == False", "tools": ["scale"]}])
    rules = {rule.rule_id: rule for rule in expansion.pack.policy_layer.policy_bundles[0].policy_dsl.rules}
    assert rules["R_DEPLOY_CHANGE_DEPLOY_SCALE_ASK"].then.requires == ("ci",)
    assert rules["R_DEPLOY_CHANGE_DEPLOY_ROLLBACK_ASK"].then.requires == ()


REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "an unknown argument": (
        {"deny": [{"when": "args.envv == 'a'", "tools": ["rollback"]}]},
        "/deny/0/when",
        "unknown_fact",
        "`args.env`",
    ),
    "an argument of another tool": ({"deny": [{"when": "args.replicas > 1"}]}, "/deny/0/when", "unknown_fact", ""),
    "unknown evidence": (
        {"ask": [{"role": "a", "when": "evidence.cii.green"}]},
        "/ask/0/when",
        "unknown_fact",
        "evidence.ci",
    ),
    "an unknown field of evidence": (
        {"deny": [{"when": "evidence.ci.gren"}]},
        "/deny/0/when",
        "unknown_fact",
        "`evidence.ci.green`",
    ),
    "another type": ({"deny": [{"when": "evidence.ci.green > 3"}]}, "/deny/0/when", "type_mismatch", "boolean"),
    "no type": ({"deny": [{"when": "evidence.ci == evidence.ci"}]}, "/deny/0/when", "type_not_derivable", ""),
    "an unknown tool": ({"ask": [{"role": "a", "tools": ["rolback"]}]}, "/ask/0/tools/0", "unknown_tool", "`rollback`"),
    "a read that is asked about": (
        {"ask": [{"role": "a", "tools": ["ci_status"]}]},
        "/ask/0/tools/0",
        "never_counts",
        "deny",
    ),
    "an entry after the last": (
        {"ask": [{"role": "a"}, {"role": "b", "when": "args.service == 'x'"}]},
        "/ask/1",
        "never_counts",
        "last",
    ),
    "an empty bound": (
        {"auto_approve": [{"tools": ["scale"], "bounds": {"replicas": {}}}]},
        "/auto_approve/0/bounds/replicas",
        "no_bound",
        "max",
    ),
    "a condition that limits no argument": (
        {"auto_approve": [{"when": "evidence.ci.green == True", "tools": ["scale"]}]},
        "/auto_approve/0/bounds",
        "no_bound",
        "`when`",
    ),
    "one of two conditions": (
        {"auto_approve": [{"when": "args.replicas <= 5 or evidence.ci.green == True", "tools": ["scale"]}]},
        "/auto_approve/0/bounds",
        "no_bound",
        "`when`",
    ),
    "a free argument alone": (
        {"auto_approve": [{"bounds": {"replicas": {"any": True}}, "tools": ["scale"]}]},
        "/auto_approve/0/bounds",
        "no_bound",
        "",
    ),
    "a bound of nothing": (
        {"auto_approve": [{"tools": ["scale"], "bounds": {"replica": {"max": 1}}}]},
        "/auto_approve/0/bounds",
        "unknown_fact",
        "`args.replicas`",
    ),
    "a bound of another type": (
        {"auto_approve": [{"tools": ["scale"], "bounds": {"service": {"max": 1}}}]},
        "/auto_approve/0/bounds",
        "type_mismatch",
        "",
    ),
    "nobody": ({"who": []}, "/intents/deploy.change/who", "nobody", "who"),
    "an intent's tool outside of it": (
        {
            "intents": {
                "deploy.change": {
                    "tools": ["ci_status", "rollback"],
                    "steps": PLAN[:2],
                    "deny": [{"when": "args.service == 'x'", "tools": ["scale"]}],
                }
            },
            "tools": ["ci_status", "rollback", "scale"],
        },
        "/intents/deploy.change/deny/0/tools/0",
        "never_counts",
        "correct",
    ),
}


@pytest.mark.parametrize(("fields", "pointer", "code", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_never_counts_or_names_nothing_is_refused(
    fields: dict[str, Any], pointer: str, code: str, says: str
) -> None:
    with pytest.raises(InvalidArtifact) as caught:
        expanded(**fields)
    problem = caught.value.problems[0]
    assert (problem.code, problem.pointer) == (code, pointer)
    assert says in problem.remedy


@pytest.mark.parametrize(
    ("when", "code"), [("args.replica <= 5", "unknown_fact"), ("args.replicas =< 5", "syntax_not_allowed")]
)
def test_a_typo_in_a_condition_is_the_one_fault(when: str, code: str) -> None:
    with pytest.raises(InvalidArtifact) as caught:
        expanded(auto_approve=[{"tools": ["scale"], "when": when}])
    assert [(one.code, one.pointer) for one in caught.value.problems] == [(code, "/auto_approve/0/when")]


def test_a_nested_condition_limits_what_is_approved() -> None:
    one = {"tools": ["scale"], "when": "args.service != 'core' and (args.replicas >= 1 and args.replicas <= 5)"}
    assert verdict("deploy.scale", {**SCALE, "replicas": 5}, auto_approve=[one])[2] == ()
    assert verdict("deploy.scale", {**SCALE, "replicas": 6}, auto_approve=[one])[2] != ()


@pytest.mark.parametrize("point", ["compile", "plan"])
def test_a_write_whose_rules_all_read_evidence_can_be_seen_before_it_is_asked_for(point: Any) -> None:
    ask = [{"role": "lead", "when": "evidence.ci.blast_radius > 20"}]
    compiled = policies(expanded(ask=ask))
    for role, seen in (("deployer", True), ("intern", False)):
        facts = {"user": {"role": role}, "request": {"intent": "deploy.change"}}
        view = CapabilityView("deploy.rollback", "destructive")
        decision = compiled.decide(point, facts, capability=view, granted=True, decision_id="pol_0000000000000001")
        assert decision.allowed is seen
        assert decision.gates == ()


def test_an_intent_that_asks_about_all_its_calls_keeps_the_conditions_of_the_pack() -> None:
    fields = {
        "ask": [{"role": "cfo", "when": "args.replicas > 5", "tools": ["scale"]}],
        "auto_approve": [{"tools": ["scale"], "bounds": {"replicas": {"max": 2}}}],
        "intents": {"deploy.change": {**INTENT, "ask": [{"role": "lead"}]}},
    }
    assert verdict("deploy.scale", {**SCALE, "replicas": 9}, **fields)[2] == ("cfo",)
    assert verdict("deploy.scale", {**SCALE, "replicas": 1}, **fields)[2] == ("lead",)


def test_two_entries_about_the_permission_of_one_tool_are_refused() -> None:
    bound = {"arg_constraints": {"replicas": {"max": 3}}}
    with pytest.raises(InvalidArtifact, match="two entries"):
        expanded(permissions={"scale": bound, "deploy.scale": bound})
