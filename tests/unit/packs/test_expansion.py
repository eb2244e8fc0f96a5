"""For generated tools and packs: the expansion passes lint, round-trips, and is never looser than silence.

Looser is defined by the policy engine: a call that the minimal pack of the same tools and people denies, or asks a
person about, and that the expansion allows without asking. Only an entry of `auto_approve` may do that, within its
bounds.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from contextos import Key, read, toolset, write
from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.lint.pack import lint_pack
from contextos.errors import InvalidArtifact, Problem
from contextos.packs.declaration import PackDeclaration
from contextos.packs.expansion import expand
from contextos.packs.reading import read_declaration, write_declaration
from contextos.packs.tools.declared import Tool
from tests.unit.packs.deploying import INTENT, TENANT, WHO, decided, expanded, policies

ROLES = ("deployer", "sre", "intern")
TYPES: dict[str, Any] = {"n": int, "share": Annotated[float, Field(ge=0)], "env": Literal["a", "b"], "note": str}
TESTS = {
    "args.n": ("args.n > {n}", "args.n == {n}", "1 <= args.n <= {n}", "not args.n > {n}"),
    "args.share": ("args.share < {n}", "args.share + 1 > {n}"),
    "args.env": ('args.env == "a"', 'args.env in ["a", "b"]', 'args.env != "b"'),
    "args.note": ('args.note == "x" or missing(args.note)', 'args.note not in ["x"]'),
    "evidence.look.n": ("evidence.look.n > {n}", "evidence.look.n <= {n} and evidence.look.env == 'a'"),
    "user": ('user.role == "sre"', "max({n}, 1) > 2 or user.user_id == 'x'"),
}
"""Conditions by the fact that they need."""


def function(name: str, arguments: Mapping[str, Any], returns: Any, *, keyed: bool) -> Any:
    """A function with these arguments, as an author would write it."""

    def made(**given: Any) -> Any:
        return given

    hints = {**arguments, **({"key": Key} if keyed else {})}
    made.__name__, made.__doc__ = name, f"The tool {name}."
    made.__annotations__ = {**hints, "return": returns}
    parameters = [
        inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, annotation=hint) for one, hint in hints.items()
    ]
    made.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    return made


@dataclass
class Looked:
    """What is known."""

    n: int
    env: str


@dataclass(frozen=True)
class Generated:
    """Generated tools, a declaration with every field that was drawn, and the same one silent."""

    definitions: tuple[AdapterDefinition, ...]
    writes: dict[str, list[str]]
    told: PackDeclaration
    silent: PackDeclaration


@st.composite
def packs(draw: st.DrawFn) -> Generated:
    names = draw(st.lists(st.sampled_from(["act", "pay", "send"]), min_size=1, max_size=3, unique=True))
    arguments = {
        one: draw(st.lists(st.sampled_from(sorted(TYPES)), unique=True, min_size=1, max_size=3)) for one in names
    }
    tools: list[Tool[Any, Any]] = [read(produces="look")(function("look", {}, Looked, keyed=False))]
    for one in names:
        risk = draw(st.sampled_from(["reversible", "irreversible"]))
        keyed = draw(st.booleans())
        made = function(one, {name: TYPES[name] for name in arguments[one]}, bool, keyed=keyed)
        tools.append(write(risk=risk, idempotency="keyed" if keyed else "none")(made))

    def condition(tool: str) -> st.SearchStrategy[str]:
        known = [f"args.{name}" for name in arguments[tool]] + ["evidence.look.n", "user"]
        texts = [text for fact in known for text in TESTS[fact]]
        return st.builds(lambda text, n: text.replace("{n}", str(n)), st.sampled_from(texts), st.integers(-3, 9))

    def about(fields: Any) -> list[dict[str, Any]]:
        entries = []
        for tool in draw(st.lists(st.sampled_from(names), max_size=3)):
            entries.append({"tools": [tool], **fields(tool)})
        return entries

    deny = about(lambda tool: {"when": draw(condition(tool))})
    ask = about(lambda tool: {"role": draw(st.sampled_from(ROLES)), "when": draw(condition(tool))})
    if draw(st.booleans()):
        ask.append({"role": "sre"})
    auto = []
    for tool in draw(st.lists(st.sampled_from(names), min_size=draw(st.integers(0, 1)), max_size=3)):
        bounds = {}
        for name in arguments[tool]:
            if name in ("n", "share"):
                bounds[name] = draw(st.sampled_from([{"max": 5}, {"min": 0, "max": 3}]))
            elif name == "env":
                bounds[name] = {"enum": ["a"]}
        if bounds:
            when = {"when": draw(condition(tool))} if draw(st.booleans()) else {}
            auto.append({"tools": [tool], "bounds": bounds, **when})
    steps = [{"tool": "look"}, *({"tool": one} for one in names)]
    basics = {
        "name": "gen",
        "version": "1.0.0",
        "tenant": TENANT,
        "intents": {"gen.do": draw(st.sampled_from([{}, {"steps": steps}]))},
    }
    basics["who"] = draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=2, unique=True))
    more = {
        "budget": {"max_tool_calls": draw(st.integers(0, 50))},
        "redaction": draw(st.lists(st.sampled_from(["pan", "email"]), unique=True)),
        "summary": draw(st.text(max_size=20)),
        "approver": draw(st.sampled_from(ROLES)),
    }
    kept = {name: value for name, value in more.items() if draw(st.booleans())}
    told = parse(PackDeclaration, {**basics, "deny": deny, "ask": ask, "auto_approve": auto, **kept})
    definition = toolset("box", tools).describe()
    return Generated((definition,), arguments, told, parse(PackDeclaration, basics))


VALUES: dict[str, Any] = {
    "n": st.integers(-4, 10),
    "share": st.floats(0, 10),
    "env": st.sampled_from(["a", "b"]),
    "note": st.sampled_from(["x", "y", ""]),
}
EVIDENCE = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"look": st.fixed_dictionaries({"n": st.integers(-4, 10), "env": VALUES["env"]})}),
)


def within(declaration: PackDeclaration, tool: str, args: Mapping[str, Any]) -> bool:
    """Whether some entry of `auto_approve` bounds this call."""
    for entry in declaration.auto_approve:
        if tool in entry.tools and all(
            (bound.min is None or args[name] >= bound.min)
            and (bound.max is None or args[name] <= bound.max)
            and (bound.enum is None or args[name] in bound.enum)
            for name, bound in entry.bounds.items()
        ):
            return True
    return False


@given(packs(), st.data())
def test_an_expansion_is_never_looser_than_silence(pack: Generated, data: st.DataObject) -> None:
    told = policies(expand(pack.told, pack.definitions), pack.definitions)
    silent = policies(expand(pack.silent, pack.definitions), pack.definitions)
    for tool, names in [*pack.writes.items()] * 3:
        args = {name: data.draw(VALUES[name]) for name in names}
        evidence, role = data.draw(EVIDENCE), data.draw(st.sampled_from(ROLES))
        before, after = (
            decided(rules, f"box.{tool}", args, evidence, role=role, intent="gen.do") for rules in (silent, told)
        )
        assert not (before.allowed and not before.gates), "silence asks about every write"
        assert before.allowed is (role in pack.silent.who)
        assert len(after.gates) <= 1, "one person is asked"
        if after.allowed:
            assert before.allowed
            assert after.gates or within(pack.told, tool, args)
        assert not decided(told, f"box.{tool}", args, evidence, role="stranger", intent="gen.do").allowed
        assert not decided(told, "box.look", {}, evidence, role="stranger", intent="gen.do", write=False).allowed


@given(packs())
def test_an_expansion_passes_lint_and_round_trips(pack: Generated) -> None:
    expansion = expand(pack.told, pack.definitions)
    raw = canonical(expansion.document)
    assert lint_pack(expansion.pack, None) == ()
    assert parse(ContextPack, raw) == expansion.pack
    assert expansion.pack.to_json() == loads(raw)
    again = read_declaration(write_declaration(pack.told).encode())
    assert again == pack.told
    assert canonical(expand(again, pack.definitions).document) == raw, "the same input gives the same bytes"


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        ({"tools": ["ci_status", "rollback"]}, "/intents/deploy.change/steps/2/tool", "unknown_tool"),
        ({"permissions": {"deploy.nothing": {}}}, "/permissions/deploy.nothing", "unknown_tool"),
        ({"permissions": {"scale": {"agrees_with": {"n": "/input/context/n"}}}}, "", "unknown_edge"),
        ({"redaction": ["iban"]}, "/redaction", "unknown_edge"),
        ({"intents": {"a": {"steps": [{"tool": "ci_status"}], "tools": ["ci_status"]}}}, "/tools", "idle_tool"),
        ({"intents": {"deploy.change": {**INTENT, "requires": ["cii"]}}}, "", "unknown_edge"),
    ],
    ids=["a tool left out", "a permission of nothing", "another argument", "another rule", "idle tools", "evidence"],
)
def test_what_names_nothing_is_refused(fields: dict[str, Any], pointer: str, code: str) -> None:
    with pytest.raises(InvalidArtifact) as caught:
        expanded(**fields)
    assert caught.value.problems[0].code == code
    assert caught.value.problems[0].pointer.startswith(pointer)


def test_a_tool_that_costs_more_than_a_run_has_is_refused() -> None:
    @read(integrity="trusted", cost_cents=3)
    def dear() -> bool:
        """A dear read."""
        return True

    body = {
        "name": "a",
        "version": "1.0.0",
        "tenant": TENANT,
        "who": ["a"],
        "intents": {"a": {"steps": [{"tool": "dear"}]}},
    }
    told = parse(PackDeclaration, body)
    with pytest.raises(InvalidArtifact) as caught:
        expand(told, [toolset("box", [dear]).describe()])
    assert caught.value.problems[0].pointer == "/budget/max_cost_cents"
    enough = parse(PackDeclaration, {**body, "budget": {"max_cost_cents": 3}})
    assert expand(enough, [toolset("box", [dear]).describe()]).pack.pin == "a@1.0.0"


def test_a_fault_of_a_role_is_at_the_place_that_the_author_wrote() -> None:
    ask = {"role": "lead", "when": 'args.env == "prod"', "tools": ["rollback"]}
    intents = {"deploy.change": {**INTENT, "ask": [ask], "who": [WHO, "other"]}}
    expansion = expanded(intents=intents, approver="boss")
    gates = expansion.document["policy_layer"]["approval_gates"]
    at = {
        expansion.placed([Problem(f"/policy_layer/approval_gates/{index}/required_approver_role", "x", "y")])[0].pointer
        for index in range(len(gates))
    }
    assert at == {"/intents/deploy.change/ask/0/role", "/approver"}
    same = [Problem(f"/tooling_layer/permissions/{index}/roles/1", "x", "y") for index in range(3)]
    assert expansion.placed(same) == (Problem("/intents/deploy.change/who/1", "x", "y"),)
    unplaced = Problem("/pack_meta/ttl_seconds", "x", "y")
    assert expansion.placed([unplaced]) == (unplaced,)
