"""D26, readers: a small file that costs minutes or gigabytes is refused for what it holds, before it is read.

Each of these took more than a minute, or more memory than the machine has; a test that hangs here has failed. No store
takes part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from contextos.action.registry import Registry
from contextos.contracts.encoding.yaml_text import read_document
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.errors import InvalidArtifact, InvalidSettings, MalformedJson
from contextos.workspace.settings import Settings

MEGABYTE = 1_000_000

NUMBERS = {
    "sexagesimal": "1" + ":1" * (MEGABYTE // 2),
    "sexagesimal fraction": "1" + ":1" * (MEGABYTE // 2) + ".0",
    "decimal": "9" * MEGABYTE,
    "5,000 digits": "9" * 5_000,
    "hexadecimal": "0x" + "f" * MEGABYTE,
    "binary": "0b" + "1" * MEGABYTE,
    "octal": "0" + "7" * MEGABYTE,
    "separated": "1" + "_" * MEGABYTE,
    "fraction": "9" * MEGABYTE + ".0",
}
ONLY_IN_1_1 = ("sexagesimal", "sexagesimal fraction", "binary", "separated")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_a_yaml_document_has_as_many_characters_as_one_of_json(name: str) -> None:
    with pytest.raises(MalformedJson) as refused:
        read_document(b"a: " + NUMBERS[name].encode() + b"\n")
    # What is a number in version 1.1 alone is refused as that, whatever its length, and is not added up.
    assert refused.value.problems[0].code == ("ambiguous" if name in ONLY_IN_1_1 else "number_too_long")


@pytest.mark.parametrize("name", ONLY_IN_1_1)
def test_a_long_number_of_an_older_version_is_never_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = yaml.SafeLoader.construct_object

    def short(loader: Any, node: Any) -> Any:
        assert len(node.value) < 5_000, "a long number is computed"
        return compute(loader, node)

    monkeypatch.setattr(yaml.SafeLoader, "construct_object", short)
    with pytest.raises(MalformedJson):
        read_document(b"a: " + NUMBERS[name].encode() + b"\n")


def test_a_text_of_digits_is_a_text(tmp_path: Path) -> None:
    assert read_document(b'a: "' + b"9" * 5_000 + b'"\n') == {"a": "9" * 5_000}


SETTINGS = {
    "one deep key": "a" + ".a" * (MEGABYTE // 2) + " = 1\n",
    "quoted keys": '"a"' + '."a"' * (MEGABYTE // 4) + " = 1\n",
    "spaced keys": "a" + " . a" * (MEGABYTE // 4) + " = 1\n",
    "a deep table": "[a" + ".a" * (MEGABYTE // 2) + "]\n",
    "many deep keys": "".join(f"k{number}{'.a' * 120} = 1\n" for number in range(4_000)),
    "many deep tables": "".join(f"[k{number}{'.a' * 120}]\n" for number in range(4_000)),
    "nested lists": "a = " + "[" * 100_000,
    "nested lists that close": "a = " + "[" * 5_000 + "]" * 5_000,
    "nested tables": "a = " + "{a=" * 50_000,
    "5,000 digits": "a = " + "9" * 5_000,
    "no text": "a = 1\n\x00",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_cost_more_than_their_size_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "contextos.toml").write_text(SETTINGS[name], "utf-8")
    with pytest.raises(InvalidSettings):
        Settings.read(tmp_path)


def adapter(schema: dict[str, Any]) -> AdapterDefinition:
    """An adapter with one read, whose input has this schema."""
    capability = {
        "name": "look",
        "kind": "read",
        "risk_level": "read",
        "approval_mode": "read_only",
        "input_schema": schema,
        "output_schema": {"type": "object", "additionalProperties": False},
        "idempotency": {"strategy": "none"},
    }
    return AdapterDefinition.model_validate(
        {"adapter_id": "adp_x", "type": "function", "version": "1.0.0", "capabilities": [capability]}
    )


def closed(properties: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties, **more}


def refusal(schema: dict[str, Any]) -> str:
    with pytest.raises(InvalidArtifact) as refused:
        Registry().register((adapter(schema),))
    return refused.value.problems[0].code


def doubling(levels: int, keyword: str) -> dict[str, Any]:
    """Each definition asks the next one twice: 2**levels checks of one value."""
    definitions: dict[str, Any] = {
        f"d{number}": {keyword: [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(levels)
    }
    return closed({"a": {"$ref": "#/$defs/d0"}}, **{"$defs": definitions | {f"d{levels}": {"type": "string"}}})


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_double_are_refused(keyword: str) -> None:
    assert refusal(doubling(60, keyword)) == "schema_bounds"
    Registry().register((adapter(doubling(3, keyword)),))


def test_references_that_come_back_are_refused() -> None:
    twice = {"allOf": [{"properties": {"next": {"$ref": "#/$defs/d"}}}] * 2}
    assert refusal(closed({"a": {"$ref": "#/$defs/d"}}, **{"$defs": {"d": twice}})) == "schema_recursive"
    assert refusal(closed({"a": {"$ref": "#"}})) == "schema_recursive"
    assert refusal(closed({"a": {"$ref": "#/properties/a"}})) == "schema_recursive"


@pytest.mark.parametrize(
    "reference", ["#/$defs/nowhere", "#anchor", "other.json", "https://example.org/s", "#/properties/a/const", "#/%7E2"]
)
def test_a_reference_that_leads_out_of_the_schema_is_refused(reference: str) -> None:
    assert refusal(closed({"a": {"const": "x"}, "b": {"$ref": reference}})) in ("schema_remote", "bad_schema")


@pytest.mark.parametrize("keyword", ["$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$vocabulary"])
def test_other_ways_to_refer_are_refused(keyword: str) -> None:
    assert refusal(closed({"a": {keyword: "#d"}})) == "schema_keyword"
    assert refusal(closed({"a": {"$id": "urn:x", "$ref": "#/$defs/d"}}, **{"$defs": {"d": {}}})) == "schema_keyword"


def check(schema: dict[str, Any], value: Any) -> bool:
    registry = Registry()
    [capability] = registry.register((adapter(schema),)).values()
    return registry.check(capability, "input", value) is None


@pytest.mark.parametrize(
    ("form", "right", "wrong"),
    [
        ("date", "2026-11-22", "2026-02-30"),
        ("date-time", "2026-11-22T10:00:00Z", "yesterday"),
        ("email", "ann@example.org", "ann"),
        ("uri", "https://example.org/", "no uri"),
        ("uuid", "8b7c8a34-9a0f-4a44-b4a6-36e2a7b9d9f0", "x"),
        ("ipv4", "192.0.2.1", "999.1.1.1"),
        ("hostname", "example.org", "-"),
    ],
)
def test_a_format_is_asserted(form: str, right: str, wrong: str) -> None:
    schema = closed({"a": {"type": "string", "format": form}})
    assert check(schema, {"a": right})
    assert not check(schema, {"a": wrong})


@pytest.mark.parametrize(
    "part",
    [
        {"format": "iban"},
        {"maxLenght": 3},
        {"contentEncoding": "base64"},
        {"contentMediaType": "application/json"},
        {"minimum": 1, "exclusiveMinimun": 2},
        {"dependencies": {}},
        {"definitions": {}},
        {"items": {"pattern": "a", "patern": "b"}},
    ],
)
def test_a_keyword_that_nobody_enforces_is_refused(part: dict[str, Any]) -> None:
    assert refusal(closed({"a": part})) == "schema_keyword"


def test_a_property_can_have_the_name_of_a_keyword() -> None:
    names = ["$ref", "format", "definitions", "maxLenght", "$id", "enum"]
    schema = closed({name: {"type": "string"} for name in names} | {"c": {"const": {"$ref": "x", "format": "y"}}})
    assert check(schema, dict.fromkeys(names, "x") | {"c": {"$ref": "x", "format": "y"}})
