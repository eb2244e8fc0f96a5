"""Documents as bytes: JSON and YAML within limits, and references that stay inside."""

from __future__ import annotations

import pytest

from contextos.adapters.openapi.document import MAX_OPENAPI_BYTES, OpenApiDocument, read_openapi
from contextos.errors import InvalidInput, MalformedJson

HEAD = b"openapi: 3.1.0\npaths: {}\n"


def test_yaml_is_read_as_version_1_2_reads_it() -> None:
    raw = b"""
openapi: "3.0.3"
info: {version: 1.0, date: 2024-01-02, no: no, on: off}
list: [1, -2, 0x10, 0o17, 010, 1_000, 0b1, 1.5e3, 1e3, .5, ~, null, true, "1", 'null', 12:30]
codes: {200: ok, true: x}
text: |
  two
  lines
"""
    assert read_openapi(raw) == {
        "openapi": "3.0.3",
        "info": {"version": 1.0, "date": "2024-01-02", "no": "no", "on": "off"},
        "list": [1, -2, 16, 15, 10, "1_000", "0b1", 1500.0, 1000.0, 0.5, None, None, True, "1", "null", "12:30"],
        "codes": {"200": "ok", "true": "x"},
        "text": "two\nlines\n",
    }


def test_an_alias_means_what_its_anchor_holds() -> None:
    assert read_openapi(b"a: &x {b: [1]}\nc: *x\nd: &y 5\ne: *y\n") == {
        "a": {"b": [1]},
        "c": {"b": [1]},
        "d": 5,
        "e": 5,
    }


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\xff\xfe", "not_utf8"),
        (b"{", "syntax"),
        (b"", "syntax"),
        (b"a: [", "syntax"),
        (b"a: 1\n---\nb: 2\n", "syntax"),
        (b"a: !!python/object:os.system x\n", "tag"),
        (b"a: &x [*x]\n", "alias"),
        (b"a: *x\n", "alias"),
        (b"a: 1\na: 2\n", "duplicate_key"),
        (b"a: &x {b: 1}\nc:\n  <<: *x\n", "merge_key"),
        (b"? [a]\n: 1\n", "not_text"),
        (b'{"a": 1, "a": 2}', "duplicate_key"),
        (b'{"a": NaN}', "number_not_finite"),
        (b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", "too_deep"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
        (b"a: " + b"[" * 200 + b"]" * 200, "too_deep"),
        (b"[" + b"1," * 1_600_000 + b"1]", "too_many_nodes"),
        (b" " * (MAX_OPENAPI_BYTES + 1), "too_large"),
    ],
)
def test_bytes_that_are_no_document_are_refused(raw: bytes, code: str) -> None:
    with pytest.raises(MalformedJson) as refused:
        read_openapi(raw)
    assert refused.value.problems[0].code == code


@pytest.mark.parametrize("version", ["2.0", "3.2.0", "4.0.0", "3.1", "x"])
def test_another_version_is_refused(version: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        OpenApiDocument(f'{{"openapi": "{version}", "paths": {{}}}}'.encode())
    assert refused.value.problems[0].code == "not_openapi"


@pytest.mark.parametrize("raw", [b"[]", b"5", b'{"swagger": "2.0"}'])
def test_a_value_without_a_version_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidInput):
        OpenApiDocument(raw)


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("https://api.example/x.json#/a", "remote_reference"),
        ("file:///etc/passwd", "remote_reference"),
        ("other.yaml#/a", "remote_reference"),
        ("#/nothing", "dangling_reference"),
        ("#anchor", "dangling_reference"),
        ("#/loop", "reference_cycle"),
        ("#/text", "no_object"),
    ],
)
def test_a_reference_leads_to_an_object_in_the_document(reference: str, code: str) -> None:
    document = OpenApiDocument(HEAD + b"loop: {$ref: '#/loop'}\ntext: x\na/b: {c: 1}\n")
    assert document.whole({"$ref": "#/a~1b"}) == {"c": 1}
    assert document.whole({"$ref": "#/a%7E1b"}) == {"c": 1}
    with pytest.raises(InvalidInput) as refused:
        document.whole({"$ref": reference})
    assert refused.value.problems[0].code == code
