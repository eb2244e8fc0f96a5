"""References inside of a document with schemas."""

from __future__ import annotations

import pytest

from contextos.adapters.foreign.schema_document import SchemaDocument
from contextos.errors import InvalidInput

DOCUMENT = SchemaDocument({"$id": "urn:t#", "definitions": {"a b": {"type": "string"}}})


@pytest.mark.parametrize("reference", ["#/definitions/a%20b", "urn:t#/definitions/a b"])
def test_a_reference_leads_to_a_place_in_its_document(reference: str) -> None:
    assert DOCUMENT.at(reference) == {"type": "string"}


@pytest.mark.parametrize("reference", ["other.json", "urn:other#/definitions/a", "#/definitions/c", "#name"])
def test_a_reference_leads_nowhere_else(reference: str) -> None:
    with pytest.raises(InvalidInput):
        DOCUMENT.at(reference)
