"""The generated page of the HTTP API: every route with its parameters, body and answers, and every document.

Everything is read from the OpenAPI document, as a client's generator reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The heads of a table, and its rows."""

INTRODUCTION: Final = (
    "A server publishes this as an OpenAPI 3.1 document at `/v1/openapi.json`, which needs no token.",
    "Every other request needs a bearer token, except where it is said.",
    "[Run it as a service](../service.md) starts a server, [Integrate from any language](../integrate.md) calls it.",
    "",
    "What is refused is answered with a [ProblemDocument](#problemdocument) (`application/problem+json`).",
    "The statuses are in [Run it as a service](../service.md#errors).",
)

_REF: Final = "#/components/schemas/"


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of the API, without a deployment."""
    from contextos.server.assembly import routed_api

    return routed_api().openapi()


def http_page(document: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the lines and the tables of the page of an OpenAPI document."""
    yield from ("# HTTP API", "", *INTRODUCTION)
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation.get("tags", ["other"])[0], []).append((method.upper(), path, operation))
    for tag, found in by_tag.items():
        yield from ("", f"## Requests: {tag}")
        for method, path, operation in found:
            yield from _operation(method, path, operation)
    yield from ("", "## Documents", "", "A time is Unix time in microseconds where its name ends with `_us`.")
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from _schema(name, schema)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str | Table]:
    yield from ("", f"### {method} {path}", "", _flat(operation.get("description", "")))
    if not operation.get("security"):
        yield from ("", "It needs no token.")
    parameters = [
        (
            f"`{one['name']}`",
            one["in"],
            _type(one["schema"]),
            _required(one.get("required")),
            _flat(one.get("description")),
        )
        for one in operation.get("parameters", ())
    ]
    if parameters:
        yield from ("", (("parameter", "in", "type", "required", "meaning"), parameters))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield from ("", f"The body is {_shown(kind, content)}.")
    answers = []
    for status, answer in sorted(operation["responses"].items()):
        if status != "default":
            shown = [_shown(kind, content) for kind, content in answer.get("content", {}).items()]
            said = "" if answer["description"] == "Successful Response" else _flat(answer["description"])
            answers.append((status, ", ".join(shown) or "nothing", said))
    yield from ("", (("status", "body", "when"), answers))


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str | Table]:
    yield from ("", f"### {name}", "", _flat(schema.get("description", "")))
    required = schema.get("required", ())
    rows = [
        (f"`{field}`", _type(one), _required(field in required), _flat(one.get("description")))
        for field, one in schema.get("properties", {}).items()
    ]
    if rows:
        yield from ("", (("member", "type", "required", "meaning"), rows))


def _shown(kind: str, content: Mapping[str, Any]) -> str:
    schema = content.get("schema")
    return _type(schema) if schema and kind == "application/json" else f"`{kind}`"


def _type(schema: Mapping[str, Any]) -> str:
    """What a value is, in words."""
    if "$ref" in schema:
        return _link(schema["$ref"].removeprefix(_REF))
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[several])))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any JSON")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    more = schema.get("additionalProperties")
    if kind == "object" and isinstance(more, Mapping):
        return f"object of {_type(more)}"
    return str(kind)


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _required(required: Any) -> str:
    return "yes" if required else ""


def _flat(text: str | None) -> str:
    return " ".join((text or "").split())
