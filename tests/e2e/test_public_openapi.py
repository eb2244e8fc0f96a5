"""Public documents of companies become adapters without a hand edit, all but a few operations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from contextos.action.registry import Registry
from contextos.adapters.openapi.document import OpenApiDocument
from contextos.adapters.openapi.draft import draft_openapi
from contextos.adapters.openapi.operations import Operations, ReadOperation, RefusedOperation
from tests.public_documents import installed

pytestmark = pytest.mark.slow

USABLE_AT_LEAST = {
    "GitHub": 0.95,
    "OpenAI": 0.93,
    "Directus": 0.95,
    "Rclone": 0.95,
    "Blockfrost": 0.93,
    "ShipEngine": 0.88,
    "Anthropic": 0.89,
    "Cohere": 0.87,
}
"""Below 0.95 where many bodies are files, schemas contradict themselves, arguments are larger than the profile, or
nothing tells alternatives with defaults apart.
"""


def test_public_documents_import_with_a_reason_for_each_operation_that_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for company, raw in installed(tmp_path).items():
        found = list(Operations(OpenApiDocument(raw)).read())
        usable = [one for one in found if isinstance(one, ReadOperation)]
        refused = [one for one in found if isinstance(one, RefusedOperation)]
        share = len(usable) / len(found)
        with capsys.disabled():
            print(f"\n{company}: {len(usable)} of {len(found)} operations are usable, {share:.1%}")
            for reason, count in Counter(one.reason for one in refused).most_common():
                print(f"  {count} refused: {reason}")
        assert all(one.reason for one in refused)
        assert share >= USABLE_AT_LEAST[company], company
        names = [one.name for one in usable[:100]]
        draft = draft_openapi("adp_public", raw, server="https://api.example", only=names)
        Registry().register((draft.definition,))
        assert {one.approval_mode for one in draft.definition.capabilities} == {"destructive"}
