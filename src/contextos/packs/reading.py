"""Reads a declaration from YAML or JSON, and writes it as YAML.

YAML is restricted to JSON's data model: no aliases, no tags, no duplicate keys, and the limits of JSON on size and
depth.
"""

from __future__ import annotations

from typing import Any, Final

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.encoding.yaml_text import write_yaml
from contextos.contracts.envelopes.pack import ContextPack
from contextos.errors import InvalidArtifact, Problem
from contextos.packs.declaration import PackDeclaration
from contextos.slots.lint.documents import read_document

WHOLE_FORM: Final = frozenset({*ContextPack.model_fields, "guardrails", "must_refuse", "must_escalate"})
"""Fields that only the whole form of a pack has."""


def read_declaration(raw: bytes) -> PackDeclaration:
    """Return the declaration that a file holds.

    Raises:
        MalformedJson: the bytes are neither YAML nor JSON, or exceed a limit.
        InvalidEnvelope: a field is unknown, missing or of another type.
        InvalidArtifact: the document is no object, or as `parse_declaration`.
    """
    value = read_document(raw)
    if not isinstance(value, dict):
        detail = "the document is no declaration of a pack"
        raise InvalidArtifact(Problem("", "not_an_object", detail, "begin with `name:`, `version:` and `tenant:`"))
    return parse_declaration(value)


def parse_declaration(value: dict[str, Any]) -> PackDeclaration:
    """Return the declaration that an object states.

    Raises:
        InvalidEnvelope: a field is unknown, missing or of another type.
        InvalidArtifact: a field is one that only the whole form of a pack has.
    """
    if foreign := [name for name in value if name in WHOLE_FORM]:
        remedy = "write the whole form, which `contextos pack expand` prints of a short one, and add it there"
        raise InvalidArtifact(
            *(Problem(pointer((name,)), "whole_form", f"the short form has no `{name}`", remedy) for name in foreign)
        )
    return parse(PackDeclaration, value)


def write_declaration(declaration: PackDeclaration) -> str:
    """Return a declaration as YAML, with exactly the fields that were written."""
    return write_yaml(declaration.to_json())
