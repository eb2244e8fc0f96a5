"""Rewrites keywords of earlier drafts of JSON Schema as 2020-12 writes them.

Source: JSON Schema, release notes of 2019-09 and of 2020-12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ANNOTATIONS: Final = frozenset(
    (
        "$anchor",
        "$comment",
        "$defs",
        "$recursiveAnchor",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "discriminator",
        "example",
        "examples",
        "externalDocs",
        "format",
        "id",
        "nullable",
        "readOnly",
        "title",
        "writeOnly",
        "xml",
    )
)
"""Keywords that constrain no value by themselves, in any draft or in OpenAPI."""


def in_2020_12(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return one schema in the keywords of 2020-12. Its subschemas are not changed.

    >>> in_2020_12({"items": [{"type": "string"}], "additionalItems": False})
    {'prefixItems': [{'type': 'string'}], 'items': False}
    """
    listed = isinstance(schema.get("items"), list) and "prefixItems" not in schema
    depends = schema.get("dependencies")
    if not listed and not isinstance(depends, dict) and "additionalItems" not in schema:
        return schema
    made = {name: value for name, value in schema.items() if name != "additionalItems"}
    if listed:
        made["prefixItems"] = made.pop("items")
        if "additionalItems" in schema:
            made["items"] = schema["additionalItems"]
    if isinstance(depends, dict):
        del made["dependencies"]
        lists = {name: one for name, one in depends.items() if isinstance(one, list)}
        required = _object(made.get("dependentRequired"))
        both = {name: [*lists[name], *one] for name, one in required.items() if name in lists and isinstance(one, list)}
        made["dependentRequired"] = {**lists, **required, **both}
        below = {name: one for name, one in depends.items() if name not in lists}
        schemas = _object(made.get("dependentSchemas"))
        twice = {name: {"allOf": [below[name], one]} for name, one in schemas.items() if name in below}
        made["dependentSchemas"] = {**below, **schemas, **twice}
    return made


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
