"""The promoted memories of one entity are one range of keys, and no other entity's key is in it."""

from __future__ import annotations

from contextos.contracts.documents.memories import promoted_key, subject_prefix


def test_a_key_is_in_the_range_of_its_entity_alone() -> None:
    key = promoted_key("customer:1", "prefers")
    assert key.startswith(subject_prefix("customer:1"))
    assert not promoted_key("customer:11", "prefers").startswith(subject_prefix("customer:1"))
    assert key != promoted_key("customer:1", "prefers ")
