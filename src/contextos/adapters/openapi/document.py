"""Reads the bytes of an OpenAPI document, JSON or YAML, within limits, and follows references inside of it.

YAML is read as version 1.2 says (`contracts.encoding.yaml_text`). An alias counts as many values as it means, because a
few lines of them can expand to gigabytes. A reference leads to a place in the same document and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from contextos.adapters.foreign.schema_document import SchemaDocument
from contextos.contracts.encoding.codec import MAX_NUMBER_CHARS, check_size
from contextos.contracts.encoding.yaml_text import malformed, read_yaml
from contextos.errors import InvalidInput, Problem

MAX_OPENAPI_BYTES: Final = 33_554_432
MAX_OPENAPI_DEPTH: Final = 100
MAX_OPENAPI_NODES: Final = 1_500_000
MAX_REFERENCE_STEPS: Final = 32
"""The most references that lead from one to the next."""

_VERSION: Final = re.compile(r"3\.[01]\.[0-9]{1,3}")


class OpenApiDocument(SchemaDocument):
    """An OpenAPI document."""

    def __init__(self, raw: bytes) -> None:
        """Read a document.

        Raises:
            MalformedJson: the bytes are neither JSON nor YAML, or exceed a limit.
            InvalidInput: the value is not an OpenAPI document of version 3.0 or 3.1.
        """
        root = read_openapi(raw)
        version = root.get("openapi") if isinstance(root, dict) else None
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            detail = "the document is not OpenAPI 3.0 or 3.1"
            raise InvalidInput(Problem("/openapi", "not_openapi", detail, "convert it to OpenAPI 3.1"))
        super().__init__(root, is_3_0=version.startswith("3.0"), sends_null=False)

    def whole(self, value: Any) -> Mapping[str, Any]:
        """Return the object that `value` is or refers to, for all but schemas, whose references can come back.

        Raises:
            InvalidInput: as `at`, or there is no object.
        """
        for _ in range(MAX_REFERENCE_STEPS):
            if not isinstance(value, dict):
                raise InvalidInput(Problem("", "no_object", "an object is missing in the document", "correct it"))
            if not isinstance(value.get("$ref"), str):
                return value
            value = self.at(value["$ref"])
        raise InvalidInput(Problem("", "reference_cycle", "a reference comes back to itself", "correct the reference"))


def read_openapi(raw: bytes) -> Any:
    """Return the JSON value of a document. If it begins with a brace it is JSON, otherwise YAML.

    Raises:
        MalformedJson: the bytes are neither JSON nor YAML, or exceed a limit.
    """
    if len(raw) > MAX_OPENAPI_BYTES:
        raise malformed("too_large", f"the document is larger than {MAX_OPENAPI_BYTES} bytes", "send a part of it")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise malformed("not_utf8", f"byte {error.start} is not UTF-8", "encode the text as UTF-8") from None
    if text.lstrip()[:1] in ("{", "["):
        return _read_json(text)
    value = read_yaml(text, max_depth=MAX_OPENAPI_DEPTH, max_nodes=MAX_OPENAPI_NODES, foreign=True)
    if value is None:
        raise malformed("syntax", "the document is empty", "send one document")
    return value


def _read_json(text: str) -> Any:
    check_size(text.encode(), MAX_OPENAPI_DEPTH, MAX_OPENAPI_NODES)
    try:
        return _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise malformed("syntax", f"the document is no JSON at line {error.lineno}", "correct it") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise malformed("duplicate_key", "an object of the document has a key twice", "keep one of them")
    return value


def _read_number(literal: str) -> int | float:
    # Bounds of 64 bits are common in schemas, which `codec.loads` refuses; a tool that has one is left out.
    if len(literal) > MAX_NUMBER_CHARS:
        raise malformed("number_too_long", f"a number has more than {MAX_NUMBER_CHARS} characters", "put it in quotes")
    number = float(literal)
    if not isfinite(number):
        raise malformed("number_not_finite", "the document has a number that is not finite", "correct it")
    return number if literal.strip("-0123456789") else int(literal)


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_without_duplicates, parse_int=_read_number, parse_float=_read_number, parse_constant=_read_number
)
