"""The table of journal kinds: the type of each body, and which modules write and read the kind.

Found in the source with `ast`: a kind in a call that writes an entry makes its module a producer, anywhere else a
consumer. The run table knows every kind and is left out.
"""

from __future__ import annotations

import ast
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, get_args

from contextos.contracts import journal
from contextos.contracts.entries.bodies import BODIES, CONTROL_BODIES, INDEX_BODIES
from contextos.contracts.journal import KINDS
from docsgen.package_map import PACKAGE

WRITING: Final = frozenset(
    {
        "record",
        "record_found",
        "derive",
        "append",
        "_append",
        "_go_live",
        "_entry",
        "_control",
        "_commit",
        "_change",
        "_Stated",
        "receive",
        "RecordRequest",
        "Timeout",
        "Draft",
        "AgentMessage",
        "ProposedAct",
        "act",
    }
)
"""Names of the functions that write an entry of the kind they are given."""

_CONSTANTS: Final = {name: one for name, one in vars(journal).items() if name.isupper() and isinstance(one, str)}
"""The texts of `contracts.journal`, some of them kinds of entries, by the names that other modules import."""
LEFT_OUT: Final = ("contracts/", "runtime/state_machine.py")


class KindUse(NamedTuple):
    """The modules (without `contextos.`) that write entries of one kind, and those that read them."""

    producers: tuple[str, ...]
    consumers: tuple[str, ...]


def kind_uses(sources: Mapping[str, str]) -> dict[str, KindUse]:
    """Return, for each kind of journal entry, the modules that write it and those that read it.

    `sources` maps paths below `src/contextos` to source texts.
    """
    writing: dict[str, set[str]] = defaultdict(set)
    reading: dict[str, set[str]] = defaultdict(set)
    for path, source in sources.items():
        if not path.startswith(LEFT_OUT):
            module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            written, read = _uses(ast.parse(source))
            for kind in written:
                writing[kind].add(module)
            for kind in read:
                reading[kind].add(module)
    return {kind: KindUse(tuple(sorted(writing[kind])), tuple(sorted(reading[kind]))) for kind in _all_kinds()}


def kinds_table() -> Iterator[tuple[str, ...]]:
    """Yield a table row for each kind of entry: kind, stream or ledger, recorded or derived, body, writers, readers."""
    root = PACKAGE
    sources = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in sorted(root.rglob("*.py"))}
    uses = kind_uses(sources)
    for kind, (ledger, recorded) in KINDS.items():
        yield _row(kind, ledger, "recorded" if recorded else "derived", BODIES[kind], uses[kind])
    for stream, bodies in (("index", INDEX_BODIES), ("control", CONTROL_BODIES)):
        for kind, body in bodies.items():
            yield _row(kind, f"stream `{stream}`", "", body, uses[kind])


def _all_kinds() -> list[str]:
    return list(dict.fromkeys([*KINDS, *INDEX_BODIES, *CONTROL_BODIES]))


def _row(kind: str, ledger: str, how: str, body: Any, use: KindUse) -> tuple[str, ...]:
    modules = [", ".join(f"`{module}`" for module in side) or "none" for side in use]
    return (f"`{kind}`", ledger, how, f"`{_type_name(body)}`", *modules)


def _type_name(body: Any) -> str:
    if isinstance(body, types.UnionType):
        return " or ".join(_type_name(one) for one in get_args(body))
    return body.__name__ if isinstance(body, type) and not get_args(body) else str(body).replace("contextos.", "")


def _uses(tree: ast.Module) -> tuple[set[str], set[str]]:
    """The kinds that a module writes and those that it reads."""
    named = _CONSTANTS | {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    kinds, written, inside = set(_all_kinds()), set[str](), set[int]()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _name(call.func) in WRITING:
            for argument in call.args:
                for node in argument.elts if isinstance(argument, ast.Tuple) else [argument]:
                    kind = named.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
                    if isinstance(kind, str) and kind in kinds:
                        written.add(kind)
                        inside.add(id(node))
    imported = {
        _CONSTANTS[node.id]
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in _CONSTANTS and id(node) not in inside
    }
    definitions = {id(node.value) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)}
    read = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in kinds
        if id(node) not in inside | definitions
    }
    return written, read | (imported & kinds)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
