"""The generated page of the Context Pack: each field of the short form and of the whole pack by its path, with
examples from the packs of `examples/`.

The fields come from the schemas of the models. A checkout is needed: an installed package has no `docs` to write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import contextos
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.schemas import DescribedSchema
from contextos.packs.declaration import PackDeclaration

EXAMPLES: Final = Path(contextos.__file__).parents[2] / "examples"
SHORT: Final = ("data_export/pack.yaml", "deploy_rollback/packs/deploy.yaml", "support_refund/short.yaml")
WHOLE: Final = "support_refund/pack.json"

Row = tuple[str, str, str, str]


def pack_page() -> Iterator[str | list[Row]]:
    """Yield the page: its lines, and each table as a list of rows (path, type, default, meaning)."""
    yield from (
        "# The pack",
        "",
        "A pack says which tools an agent can use, for whom, and within which limits. An author writes the short form;",
        "`contextos pack expand` makes the whole Context Pack of it and prints where each field comes from.",
        "In a path, `[]` is each entry of a list and `<name>` is each name of an object.",
        "A field without a default is required.",
        "",
        "## The short form: `pack.yaml`",
        "",
        f"From `examples/{SHORT[0]}`:",
        "",
        *_code("yaml", (EXAMPLES / SHORT[0]).read_text("utf-8")),
    )
    schema = PackDeclaration.model_json_schema(schema_generator=DescribedSchema)
    yield [row for row in _rows(schema, schema["$defs"]) if not _nested(row[0])]
    for name, field in schema["properties"].items():
        below = list(_below(name, field, schema["$defs"]))
        if below:
            yield from ("", f"### `{name}`", "", field["description"], "", *_short_example(name))
            yield below
    whole = json.loads((EXAMPLES / WHOLE).read_text("utf-8"))
    yield from (
        "",
        "## The whole pack: `pack.json`",
        "",
        f"The examples are from `examples/{WHOLE}`. Of a list of objects they show the first.",
    )
    schema = ContextPack.model_json_schema(schema_generator=DescribedSchema)
    for name, field in schema["properties"].items():
        yield from ("", f"### `{name}`", "", field["description"], "")
        yield from _code("json", json.dumps({name: _shortened(whole[name])}, indent=2, ensure_ascii=False))
        yield list(_below(name, field, schema["$defs"]))


def _code(language: str, text: str) -> Iterator[str]:
    yield from (f"```{language}", text.rstrip(), "```", "")


UNUSED: Final = {
    "models": "models:\n  - operation: judge.plan\n    rules: routing.deploy@1.0.0\n    prompt_fragment: "
    "Look at the build and at the impact first. Roll back only what is broken.",
    "business_hours": "business_hours:\n  office: {zone: Europe/Berlin, days: [mon], opens: '09:00', closes: '17:00'}",
}
"""The examples of what no short form in `examples/` has."""


def _short_example(name: str) -> Iterator[str]:
    for source in SHORT:
        text = (EXAMPLES / source).read_text("utf-8")
        if found := re.search(rf"^{name}:.*\n(?:[ -].*\n)*", text, re.MULTILINE):
            yield from (f"From `examples/{source}`:", "", *_code("yaml", found[0]))
            return
    if name in UNUSED:
        yield from _code("yaml", UNUSED[name])
        return
    raise AssertionError(f"no short form of `examples/` has `{name}`")


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shortened(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_shortened(one) for one in (value[:1] if value and isinstance(value[0], dict) else value)]
    return value


def _nested(path: str) -> bool:
    return "." in path or path.endswith("]")


def _rows(schema: dict[str, Any], definitions: dict[str, Any], at: str = "") -> Iterator[Row]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield f"{at}{name}", _type(field), _default(field, name in required), field["description"]
        yield from _below(f"{at}{name}", field, definitions)


def _below(path: str, field: dict[str, Any], definitions: dict[str, Any]) -> Iterator[Row]:
    """The rows of the objects in a field: itself, the entries of its list, or the values of its names."""
    field = _present(field)
    if "$ref" in field:
        yield from _rows(definitions[field["$ref"].rpartition("/")[2]], definitions, f"{path}.")
    elif field.get("type") == "array":
        yield from _below(f"{path}[]", field["items"], definitions)
    elif isinstance(values := field.get("additionalProperties"), dict):
        yield from _below(f"{path}.<name>", values, definitions)


def _type(field: dict[str, Any]) -> str:
    field = _present(field)
    if "$ref" in field:
        return "object"
    if "const" in field or "enum" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of: {_type(field['items'])}"
    if isinstance(values := field.get("additionalProperties"), dict):
        return f"by name: {_type(values)}"
    return str(field.get("type", "any JSON"))


def _default(field: dict[str, Any], required: bool) -> str:
    if required:
        return ""
    if field.get("default") is None:
        return "none"
    return "that of its fields" if "$ref" in field else f"`{json.dumps(field['default'])}`"


def _present(field: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value that is not null."""
    given = [one for one in field.get("anyOf", ()) if one.get("type") != "null"]
    if len(given) > 1:
        assert all(one["type"] in ("number", "integer") for one in given), "only a number has two forms"
        return {"type": "number"}
    return given[0] if given else field
