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
    has_tuple = isinstance(schema.get("items"), list) and "prefixItems" not in schema
    dependencies = schema.get("dependencies")
    if not has_tuple and not isinstance(dependencies, dict) and "additionalItems" not in schema:
        return schema
    result = {name: value for name, value in schema.items() if name != "additionalItems"}
    if has_tuple:
        result["prefixItems"] = result.pop("items")
        if "additionalItems" in schema:
            result["items"] = schema["additionalItems"]
    if isinstance(dependencies, dict):
        del result["dependencies"]
        lists = {name: value for name, value in dependencies.items() if isinstance(value, list)}
        required = _object(result.get("dependentRequired"))
        both = {name: [*lists[name], *new] for name, new in required.items() if name in lists and isinstance(new, list)}
        result["dependentRequired"] = {**lists, **required, **both}
        subschemas = {name: value for name, value in dependencies.items() if name not in lists}
        schemas = _object(result.get("dependentSchemas"))
        merged = {name: {"allOf": [subschemas[name], schema]} for name, schema in schemas.items() if name in subschemas}
        result["dependentSchemas"] = {**subschemas, **schemas, **merged}
    return result


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
