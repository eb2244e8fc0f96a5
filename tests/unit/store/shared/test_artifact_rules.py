"""Who sees an artifact, which assertion wins, and ids that are the same in every store."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.artifacts import Artifact, NewAssertion
from contextos.errors import InvalidInput
from contextos.store.shared.artifact_rules import assertion_of, gives_way, refuse_unseen


def new(by: Any) -> NewAssertion:
    return NewAssertion(
        artifact_id="a", org_id="acme", extension="@acme/icp", asserted_by=by, principal_id="ann", asserted_at_us=1
    )


@pytest.mark.parametrize(
    ("active", "later", "replaced"),
    [
        ("user", "agent", False),
        ("agent", "user", True),
        ("agent", "agent", True),
        ("user", "matcher", False),
        ("matcher", "matcher", False),
    ],
)
def test_a_weaker_assertion_never_replaces_a_stronger_one(active: str, later: str, replaced: bool) -> None:
    assert gives_way(assertion_of("t", new(active), 1), new(later)) is replaced


def test_a_matchers_assertion_is_a_draft_and_ids_differ_by_tenant_and_number() -> None:
    assert assertion_of("t", new("matcher"), 1).eligibility == "draft"
    made = [assertion_of("t", new("user"), 1), assertion_of("u", new("user"), 1), assertion_of("t", new("user"), 2)]
    assert len({one.assertion_id for one in made}) == 3


@pytest.mark.parametrize("level", ["team", "organization", "workspace"])
def test_an_artifact_that_no_user_could_see_is_refused(level: Any) -> None:
    fields: dict[str, Any] = {"artifact_id": "a", "org_id": "acme", "title": "x", "owner_level": level}
    fields |= {"owner_id": "sales", "visibility": "owner", "created_by": "ann", "created_at_us": 1}
    with pytest.raises(InvalidInput):
        refuse_unseen(Artifact(**fields))
    refuse_unseen(Artifact(**fields | {"owner_level": "user"}))
