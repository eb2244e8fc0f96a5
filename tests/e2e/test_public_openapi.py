"""Public documents become adapters without a hand edit, all but a few operations. `make openapi-documents` prints the
table.
"""

from __future__ import annotations

import time
from collections import Counter
from statistics import mean

import pytest

from contextos.action.registry import Registry
from contextos.adapters.openapi.document import OpenApiDocument
from contextos.adapters.openapi.draft import draft_openapi
from contextos.adapters.openapi.operations import Operations, ReadOperation, RefusedOperation
from tests.public_documents import PINNED, document

pytestmark = pytest.mark.slow

SHARE = 0.97
"""How much of a document is drafted, on average over the documents."""


def test_public_documents_are_drafted_with_a_reason_for_each_operation_that_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shares, reasons, examples = list[float](), Counter[str](), dict[str, str]()
    lines = [f"{'document':22} {'OpenAPI':8} {'operations':>10} {'drafted':>8} {'left out':>8} {'percent':>8} {'s':>6}"]
    for name in PINNED:
        raw, began = document(name), time.perf_counter()
        read = OpenApiDocument(raw)
        found = list(Operations(read, has_token="token" in PINNED[name]).read())
        took = time.perf_counter() - began
        refused = [one for one in found if isinstance(one, RefusedOperation)]
        shares.append(1 - len(refused) / len(found))
        counts = f"{len(found):10} {len(found) - len(refused):8} {len(refused):8}"
        lines.append(f"{name:22} {read.root['openapi']:8} {counts} {shares[-1]:8.1%} {took:6.1f}")
        for one in refused:
            assert one.reason, f"{name}: {one.name}"
            reasons[one.reason] += 1
            examples.setdefault(one.reason, f"{name}: {one.name}")
    lines.append(f"{len(shares)} documents, {mean(shares):.1%} on average")
    lines += [f"{count:5}  {reason}  (such as {examples[reason]})" for reason, count in reasons.most_common()]
    with capsys.disabled():
        print("", *lines, sep="\n")
    assert len(shares) >= 30
    assert mean(shares) >= SHARE


@pytest.mark.parametrize("name", PINNED)
def test_a_draft_of_a_public_document_is_one_that_the_registry_takes(name: str) -> None:
    raw, token = document(name), "API_TOKEN" if "token" in PINNED[name] else ""
    read = Operations(OpenApiDocument(raw), has_token=bool(token)).read()
    names = [one.name for one in read if isinstance(one, ReadOperation)][:100]
    draft = draft_openapi("adp_public", raw, server="https://api.example", only=names, bearer_env=token)
    Registry().register((draft.definition,))
    assert {one.approval_mode for one in draft.definition.capabilities} == {"destructive"}
