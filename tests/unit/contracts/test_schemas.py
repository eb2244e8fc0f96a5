"""Published schemas are closed, have an address, and are stable text."""

from __future__ import annotations

import json

import pytest
from jsonschema_rs import Draft202012Validator

from contextos.contracts.schemas import DIALECT, PUBLISHED, file_name, published, schema_text


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_schema_is_valid_has_its_address_and_names_every_definition(name: str) -> None:
    schema = published()[name]
    assert not Draft202012Validator(schema).is_valid(None)
    assert (schema["$schema"], schema["$id"]) == (DIALECT, f"/schemas/{file_name(name)}")
    text = schema_text(schema)
    assert json.loads(text) == schema
    used = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert used <= schema["$defs"].keys()
