"""Only `contracts.documents` names a collection, builds a `Write` or reads the body of a stored document.

The checker returns what it finds as sentences, so that the planted samples below prove that it can fail.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextos.contracts.documents import catalog, epochs, memories, operations, runs, subscriptions
from contextos.contracts.documents.collection import Collection

SRC = Path(__file__).resolve().parents[1] / "src" / "contextos"
OWNER = "contracts/documents/"
COLLECTIONS = {
    value.name
    for module in (catalog, epochs, memories, operations, runs, subscriptions)
    for value in vars(module).values()
    if isinstance(value, Collection)
}
WORDS = {"active", "approvals", "artifacts", "directory", "epoch", "keys", "pins", "requests"}
"""Names that mean something else elsewhere: refused where they can only be a collection, which `_in_place` says."""

STORES = ("store/", "audit/exported.py", "contracts/journal.py", "contracts/ports/storage.py")
"""Modules that implement `Store`, and so take and return `Write` and `Document` without reading a body."""


def violations(path: str, source: str) -> Iterator[str]:
    """Each place where a module outside `contracts.documents` knows a document by hand."""
    if path.startswith(OWNER):
        return
    tree = ast.parse(source)
    keys = {id(key) for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys}
    keys |= {id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    for node in ast.walk(tree):
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.Constant(value=str(name)) if name in COLLECTIONS - WORDS and id(node) not in keys:
                yield f"{where} spells the collection `{name}`; take it from `contracts.documents`"
            case ast.Tuple(elts=[ast.Constant(value=str(name)), _]) if name in WORDS and _in_place(tree, node):
                yield f"{where} spells the place of a document in `{name}`; use `Collection.place`"
            case ast.Compare(left=left, comparators=[right]) if _attribute(left) == "collection":
                if isinstance(right, ast.Constant):
                    yield f"{where} compares with the name of a collection; use `Collection.written`"
            case ast.Call(func=ast.Name(id="Write")):
                yield f"{where} builds a `Write`; use `Collection.write` or `.check`"
            case ast.Call(func=ast.Attribute(attr="scan")) if not path.startswith(STORES):
                yield f"{where} scans a store; use `Collection.one` or `.page`"
            case ast.Await(value=ast.Call(func=ast.Attribute(attr="look"))) if not path.startswith(STORES):
                yield f"{where} looks documents up by place; use `find_documents`"
            case ast.ImportFrom(module="contextos.contracts.journal", names=names) if not path.startswith(STORES):
                if any(name.name == "Document" for name in names):
                    yield f"{where} imports `Document`, whose body is bytes; use `StoredDocument`"


def _attribute(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


def _in_place(tree: ast.AST, place: ast.Tuple) -> bool:
    """Whether this pair is an argument of a call of `look`, or lies in a tuple or list that is one."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _attribute(node.func) == "look"]
    return any(one is place for call in calls for argument in call.args for one in ast.walk(argument))


def test_only_contracts_documents_knows_a_document_by_hand() -> None:
    found = [
        violation
        for path in sorted(SRC.rglob("*.py"))
        for violation in violations(path.relative_to(SRC).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


PLANTED = {
    "a collection by name": 'LEASES = "leases"',
    "a write by hand": 'write = Write("pins", key, 0, b"")',
    "a scan by hand": 'async def f(store): return (await store.scan("artifacts", key="k"))[0].body',
    "a scan outside a coroutine": 'found = immediately(store.scan("approvals"))',
    "a look-up by place": 'async def f(store): return await store.look((("keys", "k"),))',
    "a place": 'found = store.look([("epoch", "store")])',
    "a comparison": 'acts = [w for w in writes if w.collection == "keys"]',
    "a document": "from contextos.contracts.journal import Batch, Document",
}


@pytest.mark.parametrize("source", PLANTED.values(), ids=PLANTED)
def test_a_planted_violation_is_found(source: str) -> None:
    assert list(violations("deployment/planted.py", source))


def test_what_only_looks_like_one_is_not() -> None:
    for source in (
        'give({"dead_letters": documents})',
        'found = body["breakers"]',
        'at = text.look(("keys"))',
        "from contextos.contracts.journal import Batch, Write",
        'fields = ("keys", "names")',
    ):
        assert not list(violations("deployment/planted.py", source)), source
