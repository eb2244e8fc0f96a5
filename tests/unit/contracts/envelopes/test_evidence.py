"""Facts as the journal states them: the digest of each follows from what it says."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from contextos.contracts.envelopes.evidence import EvidenceItem, fact_digest, items_from, items_json

ITEM = {
    "evidence_ref": "kg:order:ord_1#snapshot_kg_1",
    "subject": "order:ord_1",
    "predicate": "total_inr",
    "value": 900,
    "origin": "artifact:a#rev_1",
    "integrity": "trusted",
    "classification": "CONFIDENTIAL",
    "observed_at_us": 1,
}


@pytest.mark.parametrize("value", [900, 0, False, None, "x", {"a": [1]}])
def test_an_item_is_read_back_with_the_digest_that_it_had(value: Any) -> None:
    digest = fact_digest("order:ord_1", "total_inr", value)
    items = (EvidenceItem.model_validate({**ITEM, "value": value, "digest": digest}),)
    stated = items_json(items)
    assert stated == [ITEM | {"value": value}]
    assert items_from(stated) == items
    assert items_from([]) == ()


def test_no_digest_that_an_entry_states_counts() -> None:
    [item] = items_from([ITEM | {"digest": "sha256:" + "0" * 64}])
    assert item.digest == fact_digest("order:ord_1", "total_inr", 900)


@pytest.mark.parametrize("member", ["subject", "predicate", "value"])
def test_an_item_without_what_it_says_is_refused(member: str) -> None:
    with pytest.raises(ValidationError):
        items_from([{name: one for name, one in ITEM.items() if name != member}])
