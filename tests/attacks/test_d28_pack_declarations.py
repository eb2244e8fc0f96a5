"""A declaration of a pack is data: no text of it runs, none costs more than it says, and none allows by accident.

Attacks: YAML that expands, nests or calls, conditions that call, import, read attributes or grow, names that give one
id, and fields that would never count.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos import Key, pack, read, toolset, write
from contextos.errors import InvalidArtifact, InvalidInput, InvalidTool, MalformedJson
from contextos.packs.reading import read_declaration
from tests.unit.packs.deploying import TENANT, expanded

HEAD = b"name: a\nversion: 1.0.0\ntenant: t\nwho: [a]\nintents: {a: {steps: [{tool: b}]}}\n"
BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(8)
)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (BOMB, "alias"),
        (HEAD + b"summary: &a x\nowner: *a\n", "alias"),
        (HEAD + b"summary: !!python/object/apply:os.system ['id']\n", "tag"),
        (HEAD + b"summary: !!python/name:os.system\n", "tag"),
        (HEAD + b"? !!binary aGk=\n: x\n", "tag"),
        (HEAD + b"summary: " + b"[" * 5000, "too_deep"),
        (HEAD + b"summary: " + b"{a: " * 500, "too_deep"),
        (HEAD + b"owner: [" + b"a," * 150_000 + b"]\n", "too_many_nodes"),
        (HEAD + b"summary: " + b"x" * 2_000_000, "too_large"),
        (HEAD + b"name: b\n", "duplicate_key"),
        (HEAD + b"1: x\n", "not_text"),
        (HEAD + b"summary: 2026-01-01\n", "ambiguous"),
        (HEAD + b"summary: " + b"9" * 5000 + b"\n", "number_too_long"),
        (HEAD + b"<<: {name: b}\n", "merge_key"),
        (b"\xff\xfe" + HEAD, "not_utf8"),
        (HEAD + b"---\nname: b\n", "syntax"),
        (HEAD + b"summary: 'a\n", "syntax"),
    ],
    ids=[
        "a billion laughs",
        "an alias",
        "a call",
        "a name",
        "a binary key",
        "deep lists",
        "deep maps",
        "many values",
        "many bytes",
        "a key twice",
        "a number as key",
        "a date",
        "a long number",
        "a merge key",
        "no text",
        "two documents",
        "an open quote",
    ],
)
def test_yaml_that_is_more_than_data_is_refused(raw: bytes, code: str) -> None:
    with pytest.raises(MalformedJson) as caught:
        read_declaration(raw)
    assert caught.value.problems[0].code == code
    assert caught.value.problems[0].remedy


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('id')",
        "().__class__.__bases__[0].__subclasses__()",
        "args.__class__.__init__.__globals__['os']",
        "open('/etc/passwd').read() == ''",
        "[x for x in args.a] == []",
        "(lambda: True)()",
        "(args := 1) > 0",
        "f'{args.a}' == ''",
        "'%s' % args.a == ''",
        "'a' * 10 ** 9 == args.a",
        "10 ** 10 ** 10 > args.a",
        "1 << 10 ** 9 > args.a",
        "args.a == 9" + "9" * 100,
        "args.a == 9" + "9" * 3900,
        "args.a == 1e999",
        "await args.a",
        "yield args.a",
        "max(*args.a) > 1",
        "max(**args.a) > 1",
        "args.a == ...",
        "args.a == b'x'",
        "args.a == 1j",
        "{'a': 1} == args.a",
        "args.a[args.b] == 1",
        "args.a[1:2] == 1",
        "args.a; args.b",
        "args.a = 1",
        "import os",
        "args.a\nimport os",
        "(" * 300 + "args.a" + ")" * 300,
        "not " * 900 + "args.a",
        "-" * 3000 + "args.a > 0",
        "args" + ".a" * 1500,
        "args.a" + " + 1" * 900 + " > 0",
        "args.a if " * 150 + "args.a" + " else args.a" * 150,
        "missing(args.__class__())",
        "args.a\x00",
    ],
    ids=range(37),
)
def test_a_condition_is_parsed_and_never_run(text: str) -> None:
    with pytest.raises(InvalidArtifact) as caught:
        expanded(deny=[{"when": text, "tools": ["rollback"]}])
    assert all(one.pointer.startswith("/deny/0/when") or not one.pointer for one in caught.value.problems)
    assert all(len(one.detail) < 500 for one in caught.value.problems)


@pytest.mark.parametrize("text", ["a" * 5000, "", "\ud800", 5, None, True, ["args.a"], {">": [1, 2]}], ids=repr)
def test_a_condition_is_a_text_of_bounded_length(text: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        expanded(deny=[{"when": text}])
    assert caught.value.problems[0].pointer == "/deny/0/when"


def named(name: str) -> Any:
    @write(risk="reversible", idempotency="keyed", name=name)
    def act(key: Key) -> bool:
        """Act."""
        return bool(key)

    return act


@read(integrity="trusted")
def look() -> bool:
    """Look."""
    return True


def test_names_that_give_one_rule_id_are_refused() -> None:
    steps = [{"tool": "look"}, {"tool": "a_b"}, {"tool": "A_B"}, {"tool": "a__b"}]
    for pair in (["a_b", "A_B"], ["a_b", "a__b"]):
        tools = toolset("box", [look, *map(named, pair)])
        intents = {"do": {"steps": [one for one in steps if one["tool"] in ("look", *pair)]}}
        with pytest.raises(InvalidArtifact) as caught:
            pack("p", version="1.0.0", tenant=TENANT, tools=[tools], who=["a"], intents=intents)
        assert caught.value.problems[0].code == "same_id"


def test_two_intents_that_give_one_rule_id_are_refused() -> None:
    intents = {name: {"steps": [{"tool": "look"}]} for name in ("do.it", "do_it")}
    with pytest.raises(InvalidArtifact) as caught:
        pack("p", version="1.0.0", tenant=TENANT, tools=[toolset("box", [look])], who=["a"], intents=intents)
    assert caught.value.problems[0].code == "same_id"


def test_one_name_for_two_tools_says_which_it_could_be() -> None:
    tools = [toolset("one", [look]), toolset("two", [look])]
    intents = {"do": {"steps": [{"tool": "look"}]}}
    with pytest.raises(InvalidArtifact) as caught:
        pack("p", version="1.0.0", tenant=TENANT, tools=tools, who=["a"], intents=intents)
    assert caught.value.problems[0].code == "ambiguous_tool"
    with pytest.raises(InvalidTool):
        pack("p", version="1.0.0", tenant=TENANT, tools=[tools[0], tools[0]], who=["a"], intents=intents)


def test_what_the_caller_only_states_asks_nobody_and_frees_nothing() -> None:
    stated = 'request.context.sure == "yes"'
    for fields in (
        {"ask": [{"role": "a", "when": stated}]},
        {"auto_approve": [{"tools": ["scale"], "bounds": {"replicas": {"max": 5}}, "when": stated}]},
    ):
        with pytest.raises(InvalidArtifact) as caught:
            expanded(**fields)
        assert "asserted_fact" in {one.code for one in caught.value.problems}


def test_a_secret_in_a_declaration_is_found_in_its_expansion() -> None:
    from contextos.trust.redact import find_secrets

    expansion = expanded(summary="use sk-ant-api03-" + "a" * 80)
    assert find_secrets(json.loads(json.dumps(expansion.document)), "remove it")
