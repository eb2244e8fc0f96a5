"""A condition in Python's syntax means what it says, and nothing else compiles."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.errors import InvalidArtifact
from contextos.packs.expressions import compile_condition, limited_arguments

A, B = {"var": "args.a"}, {"var": "args.b"}


@pytest.mark.parametrize(
    ("text", "logic"),
    [
        ("args.a", A),
        ("not args.a", {"!": [A]}),
        ("args.a and args.b or not args.a", {"or": [{"and": [A, B]}, {"!": [A]}]}),
        ("args.a > 1", {">": [A, 1]}),
        ("1 < args.a < 5", {"<": [1, A, 5]}),
        ("1 <= args.a < 5", {"and": [{"<=": [1, A]}, {"<": [A, 5]}]}),
        ("args.a > args.b > 1", {"and": [{">": [A, B]}, {">": [B, 1]}]}),
        ("args.a == -1.5", {"==": [A, -1.5]}),
        ("args.a != 'x'", {"!=": [A, "x"]}),
        ("args.a in ['x', 'y']", {"in": [A, ["x", "y"]]}),
        ("args.a not in ('x',)", {"!": [{"in": [A, ["x"]]}]}),
        ("args.a + 1 - 2 * args.b % 3 > 0", {">": [{"-": [{"+": [A, 1]}, {"%": [{"*": [2, B]}, 3]}]}, 0]}),
        ("args.a / 4 > 0", {">": [{"/": [A, 4]}, 0]}),
        ("-args.a > 0", {">": [{"-": [A]}, 0]}),
        ("max(args.a, 1) == min(args.b, 2)", {"==": [{"max": [A, 1]}, {"min": [B, 2]}]}),
        ("default(args.a, 0) > 1", {">": [{"var": ["args.a", 0]}, 1]}),
        ("missing(args.a, args.b)", {"!!": [{"missing": ["args.a", "args.b"]}]}),
        ("not missing(args.a)", {"!": [{"missing": ["args.a"]}]}),
        ("missing_some(1, args.a, args.b)", {"!!": [{"missing_some": [1, ["args.a", "args.b"]]}]}),
        ("args.a if args.b else True", {"if": [B, A, True]}),
        ("args.a if args.b else args.b if args.a else False", {"if": [B, A, A, B, False]}),
        ("evidence['c-i'].green", {"var": "evidence.c-i.green"}),
        ("\n  args.a  \n", A),
        (r'args.a == "say \"a && b\""', {"==": [A, 'say "a && b"']}),
        (r"args.a == 'it\'s = AND'", {"==": [A, "it's = AND"]}),
        (r"args.a == 'a\\' and args.b == 'b = \\'", {"and": [{"==": [A, "a\\"]}, {"==": [B, "b = \\"]}]}),
        ('args.a == "" and args.b == \'"\'', {"and": [{"==": [A, ""]}, {"==": [B, '"']}]}),
        ('''args.a == """a "b" != c || d"""''', {"==": [A, 'a "b" != c || d']}),
    ],
    ids=lambda value: value.strip() if isinstance(value, str) else None,
)  # fmt: skip
def test_a_condition_compiles_to_jsonlogic(text: str, logic: Any) -> None:
    assert compile_condition(text) == logic


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("", "syntax", "args.amount > 20"),
        ("args.a >", "syntax", "args.amount > 20"),
        ("args.a is True", "syntax_not_allowed", "=="),
        ("args.a == None", "not_a_literal", "missing"),
        ("args.a == 1j", "not_a_literal", "boolean"),
        ("args.a & args.b", "syntax_not_allowed", "`and`"),
        ("+args.a > 1", "syntax_not_allowed", "not"),
        ("args.a in [args.b]", "not_a_literal", "write the values out"),
        ("args.a[0] > 1", "not_a_fact", "evidence['ci']"),
        ("args['a.b'] > 1", "not_a_fact", "evidence['ci']"),
        ("agrs.a > 1", "unknown_fact", "`args.a`"),
        ("what.a > 1", "unknown_fact", "begin with one of"),
        ("user_role == 'x'", "unknown_fact", "`user.role`"),
        ("defalt(args.a, 1) > 1", "unknown_function", "`default`"),
        ("default(args.a) > 1", "argument_count", "default(args.n, 0)"),
        ("missing('args.a')", "not_a_fact", "args.env"),
        ("args", "unknown_fact", "begin with one of"),
    ],
    ids=lambda value: value or "empty",
)
def test_what_is_no_condition_is_refused_with_what_to_write(text: str, code: str, says: str) -> None:
    with pytest.raises(InvalidArtifact) as caught:
        compile_condition(text, ("deny", 0, "when"))
    problem = caught.value.problems[0]
    assert problem.code == code
    assert says in problem.remedy
    assert problem.pointer == "/deny/0/when"


@pytest.mark.parametrize(
    ("written", "limits"),
    [
        ("args.a < 5 and args.a < 10", {"max": 5}),
        ("args.a < 10 and args.a < 5", {"max": 5}),
        ("args.a > 1 and 3 < args.a", {"min": 3}),
        ("args.a in ['x', 'y'] and args.a in ['y', 'z']", {"enum": ["y"]}),
        ("args.a == 'x' and args.a in ['x', 'y']", {"enum": ["x"]}),
        ("args.b != 1 and (args.a >= 1 and args.a < 5)", {"min": 1, "max": 5}),
        ("(1 <= args.a < 5) and (args.b != 1 and (args.b != 2 and args.a > 2))", {"min": 2, "max": 5}),
        ("args.a == 5", {"min": 5, "max": 5}),
        ("5 == args.a", {"min": 5, "max": 5}),
        ("args.a == True", {"enum": [True]}),
        ("False == args.a and args.b != True", {"enum": [False]}),
        ("args.a == 'x'", {"enum": ["x"]}),
    ],
)
def test_of_two_limits_the_narrower_counts(written: str, limits: dict[str, object]) -> None:
    assert limited_arguments(compile_condition(written, ("when",))) == {"a": {"required": True, **limits}}


@pytest.mark.parametrize(
    "written",
    [
        "args.a != 5",
        "args.a != 'x'",
        "args.a != True",
        "5 != args.a",
        "not (args.a > 5)",
        "args.a > 1 or args.b > 1",
        "args.a > 'x'",
        "args.a > True",
        "args.a == args.b",
        "'x' in args.a",
        "['x'] in args.a",
        "args.a not in ['x']",
        "default(args.a, 1) < 5",
        "evidence.a < 5",
    ],
)
def test_what_leaves_an_argument_open_limits_nothing(written: str) -> None:
    assert limited_arguments(compile_condition(written, ("when",))) == {}


def test_a_long_text_is_refused_before_it_is_searched() -> None:
    for text in ("'" * 2_000_000, "args.a == 1 && " * 1_000):
        with pytest.raises(InvalidArtifact) as caught:
            compile_condition(text, ("when",))
        assert [one.code for one in caught.value.problems] == ["too_long"]


@pytest.mark.parametrize("quote", ['"', "'", "'''", '"""'])
def test_backslashes_in_a_text_that_nobody_closes_are_refused_and_do_not_hold_the_process(quote: str) -> None:
    """A search with two readings of a backslash would take 2 to the power of their number of steps."""
    for text in (quote + "\\" * 3_000, "args.a == " + quote + "\\a" * 1_500, quote + "\\" * 2_999 + quote):
        with pytest.raises(InvalidArtifact) as caught:
            compile_condition(text, ("when",))
        assert [one.code for one in caught.value.problems] == ["syntax"]
