"""Compiles conditions in the syntax of Python expressions to the JsonLogic of policy rules.

The text is parsed and never run. It can hold facts (`args.env`, `evidence["ci"].green`), literals, `and`, `or`, `not`,
comparisons, `in`, `+ - * / %`, `x if c else y`, and the functions `min`, `max`, `default`, `missing`, `missing_some`.
Refuses every other syntax, and texts beyond the limits. Lint checks whether a fact exists and its type fits.

>>> compile_condition('args.amount > 20 and args.env == "prod"')
{'and': [{'>': [{'var': 'args.amount'}, 20]}, {'==': [{'var': 'args.env'}, 'prod']}]}
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final, NoReturn

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.facts import FACTS, ROOTS, nearest_name
from contextos.errors import InvalidArtifact, Problem
from contextos.trust.policy.operators import MAX_CONDITION_DEPTH, literal_type

MAX_EXPRESSION_CHARS: Final = 4_000
MAX_SYNTAX_DEPTH: Final = 2 * MAX_CONDITION_DEPTH

COMPARED: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
}
CALCULATED: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Mod: "%",
}
FUNCTIONS: Final = ("default", "max", "min", "missing", "missing_some")
CHAINED: Final = ("<", "<=")
"""The comparisons that JsonLogic has with three operands."""

_FIXES: Final = {
    "&&": "and",
    "||": "or",
    "===": "==",
    "!==": "!=",
    "<>": "!=",
    "=<": "<=",
    "=>": ">=",
    "=": "==",
    "!": "not",
    "&": "and",
    "|": "or",
    **dict.fromkeys("“”„«»", '"'),
    **dict.fromkeys("‘’‚", "'"),  # noqa: RUF001
}
"""The operators and quotes of other languages, each with what a condition uses instead."""
_FOREIGN_TOKENS: Final = re.compile(
    r"""(?P<quote>"{3}|'{3}|["'])(?:\\.|(?!(?P=quote))[^\\])*+(?P=quote)"""
    r"|(?P<part>===|!==|&&|\|\||<>|=<|=>|[<>=!]=|[“”„«»‘’‚\\]|[=!&|]|[\w.]+)",  # noqa: RUF001
    re.DOTALL,
)
_WORDS: Final = ("and", "in", "not", "or")
_NULL_NAMES: Final = ("null", "nil", "undefined", "none")

Place = tuple[str | int, ...]


def compile_condition(text: str, at: Place = ()) -> Any:
    """Return the JsonLogic of a condition. `at` is the path of the text in its document, for errors.

    Raises:
        InvalidArtifact: the text is not a condition; says what to write.
    """
    if len(text) > MAX_EXPRESSION_CHARS:
        refuse_expression(at, "too_long", f"it has more than {MAX_EXPRESSION_CHARS} characters", "split the rule")
    parts = (match["part"] for match in _FOREIGN_TOKENS.finditer(text))
    fixes = {part: _FIXES.get(part, part.lower()) for part in parts if part}
    if "\\" in fixes:
        refuse_expression(at, "syntax", "it has a backslash outside of a text", "remove the backslash")
    if foreign := [part for part, fix in fixes.items() if part in _FIXES or (fix != part and fix in _WORDS)]:
        names = " and ".join(f"`{part}`" for part in foreign)
        advice = ", ".join(f"`{fixes[part]}` for `{part}`" for part in foreign)
        are = "are" if len(foreign) > 1 else "is"
        refuse_expression(at, "syntax_not_allowed", f"{names} {are} not part of a condition", f"write {advice}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if not isinstance(error, SyntaxError):
            reason = "it is nested too deeply, or holds too large a number"
            refuse_expression(at, "syntax", f"it is not an expression: {reason}", "split the rule")
        remedy = "close the quotes" if "unterminated" in error.msg else "write it like `args.amount > 20`"
        position = f"character {error.offset}" if error.offset else "its end"
        refuse_expression(at, "syntax", f"it is not an expression: {error.msg} at {position}", remedy)
    return _Compiler(at).read(tree.body, 0)


def refuse_expression(at: Place, code: str, detail: str, remedy: str) -> NoReturn:
    """Raise `InvalidArtifact` for the condition at the path `at`."""
    raise InvalidArtifact(Problem(pointer(at), code, f"the condition: {detail}", remedy))


class FaultCollector:
    """Collects the faults of one document, so that they are refused together."""

    def __init__(self) -> None:
        self.faults: list[Problem] = []

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Return a context that adds the problems of a refusal to `faults`, so that all faults are found at once."""
        try:
            yield
        except InvalidArtifact as error:
            self.faults += error.problems

    def refuse_faults(self) -> None:
        """Raise `InvalidArtifact` if faults were kept, with one problem for each place and code."""
        first: dict[tuple[str, str], Problem] = {}
        for fault in self.faults:
            first.setdefault((fault.pointer, fault.code), fault)
        if first:
            raise InvalidArtifact(*first.values())


class _Compiler:
    """Compiles one syntax tree. `at` is the path of the condition."""

    def __init__(self, at: Place) -> None:
        self.at = at
        self.readers: dict[type[ast.expr], Callable[[Any, int], Any]] = {
            ast.BoolOp: self._bool,
            ast.UnaryOp: self._unary,
            ast.BinOp: self._binary,
            ast.Compare: self._compare,
            ast.Call: self._call,
            ast.IfExp: self._choice,
            ast.Constant: self._constant,
            ast.List: self._list,
            ast.Tuple: self._list,
            ast.Name: self._fact,
            ast.Attribute: self._fact,
            ast.Subscript: self._fact,
        }

    def read(self, node: ast.expr, depth: int) -> Any:
        if depth > MAX_SYNTAX_DEPTH:
            self.refuse("too_deep", "it is nested too deeply", "split the rule")
        reader = self.readers.get(type(node))
        if reader is None:
            kind = type(node).__name__
            remedy = "use facts, literals, comparisons, `in`, `and`, `or`, `not` and arithmetic"
            self.refuse("syntax_not_allowed", f"`{kind}` is not part of a condition", remedy)
        return reader(node, depth + 1)

    def _bool(self, node: ast.BoolOp, depth: int) -> Any:
        return {"and" if isinstance(node.op, ast.And) else "or": [self.read(value, depth) for value in node.values]}

    def _unary(self, node: ast.UnaryOp, depth: int) -> Any:
        operand = self.read(node.operand, depth)
        if isinstance(node.op, ast.Not):
            return {"!": operand["!!"] if isinstance(operand, dict) and "!!" in operand else [operand]}
        if not isinstance(node.op, ast.USub):
            self.refuse("syntax_not_allowed", "this operator is not part of a condition", "use `not` or `-`")
        return -operand if literal_type(operand) == "number" else {"-": [operand]}

    def _binary(self, node: ast.BinOp, depth: int) -> Any:
        name = CALCULATED.get(type(node.op))
        if name is None:
            remedy = "use + - * / %; for conditions use `and` and `or`"
            self.refuse("syntax_not_allowed", "this operator is not part of a condition", remedy)
        return {name: [self.read(node.left, depth), self.read(node.right, depth)]}

    def _compare(self, node: ast.Compare, depth: int) -> Any:
        operands = [self.read(operand, depth) for operand in (node.left, *node.comparators)]
        names = [COMPARED.get(type(operator)) for operator in node.ops]
        if len(names) == 2 and names[0] == names[1] and names[0] in CHAINED:
            return {names[0]: operands}
        pairs = [
            self._pair(name, node.ops[index], operands[index], operands[index + 1]) for index, name in enumerate(names)
        ]
        return pairs[0] if len(pairs) == 1 else {"and": pairs}

    def _pair(self, name: str | None, operator: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(operator, ast.NotIn):
            return {"!": [{"in": [left, right]}]}
        if name is None:
            self.refuse("syntax_not_allowed", "`is` is not part of a condition", "compare with `==`")
        return {name: [left, right]}

    def _call(self, node: ast.Call, depth: int) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS or node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            similar = nearest_name(name, FUNCTIONS)
            remedy = f"write `{similar}`" if similar else f"the functions are {', '.join(FUNCTIONS)}"
            call = ast.unparse(node.func)[:80]
            self.refuse("unknown_function", f"`{call}(…)` is not a function of a condition", remedy)
        if name in ("min", "max"):
            return {name: [self.read(argument, depth) for argument in node.args]}
        if name == "default":
            if len(node.args) != 2:
                self.refuse("argument_count", "`default` takes a fact and a value", "write `default(args.n, 0)`")
            return {"var": [self._path(node.args[0]), self.read(node.args[1], depth)]}
        if name == "missing":
            return {"!!": [{"missing": [self._path(argument) for argument in node.args]}]}
        minimum = self.read(node.args[0], depth) if node.args else None
        return {"!!": [{"missing_some": [minimum, [self._path(argument) for argument in node.args[1:]]]}]}

    def _choice(self, node: ast.IfExp, depth: int) -> Any:
        then, test, other = (self.read(part, depth) for part in (node.body, node.test, node.orelse))
        tail = other["if"] if isinstance(other, dict) and "if" in other else [other]
        return {"if": [test, then, *tail]}

    def _constant(self, node: ast.Constant, _depth: int) -> Any:
        if literal_type(node.value) is None:
            absent = "ask `missing(…)` whether a fact is there"
            remedy = absent if node.value is None else "use a boolean, a text or a number up to 2^53-1"
            self.refuse("not_a_literal", f"`{str(node.value)[:40]}` is not a value of a condition", remedy)
        return node.value

    def _list(self, node: ast.List | ast.Tuple, depth: int) -> Any:
        values = [self.read(item, depth) for item in node.elts]
        if any(literal_type(value) is None for value in values):
            self.refuse("not_a_literal", "a list holds literals", "write the values out, and a number without commas")
        return values

    def _fact(self, node: ast.expr, _depth: int) -> Any:
        return {"var": self._path(node)}

    def _path(self, node: ast.expr) -> str:
        """Return the dotted path of a fact: names and texts in brackets, below a root."""
        segments: list[str] = []
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute):
                segments.append(node.attr)
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                segments.append(self._segment(node.slice.value))
            else:
                self.refuse("not_a_fact", "this is not a fact", "write it like `args.env` or `evidence['ci'].green`")
            node = node.value
            if len(segments) > MAX_SYNTAX_DEPTH:
                self.refuse("too_deep", "the path is too long", "shorten it")
        path = ".".join((node.id, *reversed(segments)))
        if not segments and (word := node.id.capitalize()) in ("True", "False"):
            self.refuse("unknown_fact", f"`{node.id}` is not a truth value here", f"write `{word}`")
        if not segments and node.id.lower() in _NULL_NAMES:
            self.refuse("not_a_literal", f"`{node.id}` is not a value here", "ask `missing(…)` whether a fact is there")
        if not segments or node.id not in ROOTS:
            similar = nearest_name(path, [fact.path for fact in FACTS if "<" not in fact.path])
            root = nearest_name(node.id, ROOTS)
            if segments and root is not None and root != node.id:
                similar = ".".join((root, *reversed(segments)))
            remedy = f"write `{similar}`" if similar else f"begin with one of {', '.join(ROOTS)}"
            if not segments and node.id not in ROOTS:
                remedy = f'write the text "{node.id[:80]}" in quotes; or, for a fact, {remedy}'
            self.refuse("unknown_fact", f"there is no fact `{path[:200]}`", remedy)
        return path

    def _segment(self, value: Any) -> str:
        if not isinstance(value, str) or not value or "." in value:
            self.refuse("not_a_fact", "a name in brackets is a text without dots", "write `evidence['ci'].green`")
        return value

    def refuse(self, code: str, detail: str, remedy: str) -> NoReturn:
        refuse_expression(self.at, code, detail, remedy)


def conjuncts(condition: Any, *, nested: bool = False) -> list[Any]:
    """Return the conditions (JsonLogic) whose conjunction `condition` is; with `nested`, split them further, too."""
    if not isinstance(condition, dict) or "and" not in condition:
        return [condition]
    return [part for operand in condition["and"] for part in (conjuncts(operand, nested=True) if nested else [operand])]


def limited_arguments(condition: Any) -> dict[str, dict[str, Any]]:
    """Return the arguments that a condition (JsonLogic) limits, each with its limits as an `ArgConstraint` in JSON.

    The limits allow every value that the condition allows, and perhaps more: `args.count < 5` gives `max: 5`.
    """
    arguments: dict[str, dict[str, Any]] = {}
    for part in conjuncts(condition, nested=True):
        [(operator, values)] = part.items() if isinstance(part, dict) else [("", ())]
        for left, right in pairwise(values if isinstance(values, list) else ()):
            sides = _SIDES.get(operator, ())
            for fact, value, limits in ((left, right, sides[:1]), (right, left, sides[1:])):
                path = fact.get("var") if isinstance(fact, dict) else None
                argument = str(path).split(".")
                if len(argument) != 2 or argument[0] != "args" or isinstance(value, dict):
                    continue
                constraint = arguments.setdefault(argument[1], {"required": True})
                if isinstance(value, int | float) and not isinstance(value, bool):
                    for limit in sides if operator == "==" else limits:
                        constraint[limit] = (min if limit == "max" else max)(constraint.get(limit, value), value)
                elif isinstance(value, list) and value and operator == "in" and fact is left:
                    constraint["enum"] = [item for item in constraint.get("enum", value) if item in value] or value
                elif isinstance(value, str | bool) and operator == "==":
                    constraint["enum"] = [value]
    return {argument: limits for argument, limits in arguments.items() if len(limits) > 1}


_SIDES: Final = {
    "<": ("max", "min"),
    "<=": ("max", "min"),
    ">": ("min", "max"),
    ">=": ("min", "max"),
    "==": ("min", "max"),
}
