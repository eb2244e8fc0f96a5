"""Values that a schema describes: a generator for the part of JSON Schema that our published schemas use."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SILENT = {"$schema", "$id", "$defs", "description", "default", "title", "not"}

ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.just(0.5) | st.text("ab°", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=4,
)


def instances(schema: Any, root: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of `schema`; those that its `not` excludes are among them."""
    known = {} if schema is True else {key: schema[key] for key in schema.keys() - SILENT}
    if not known:
        return ANY
    for choice in ("anyOf", "oneOf"):
        if choice in known:
            return st.one_of([instances(each, root) for each in known[choice]])
    if "$ref" in known:
        return st.deferred(lambda: instances(root["$defs"][known["$ref"].removeprefix("#/$defs/")], root))
    if "const" in known:
        return st.just(known["const"])
    if "enum" in known:
        return st.sampled_from(known["enum"])
    return _OF_TYPE[known["type"]](known, root)


def _text(schema: dict[str, Any], _root: dict[str, Any]) -> st.SearchStrategy[str]:
    longest, shortest = schema.get("maxLength", 100), schema.get("minLength", 0)
    if "pattern" in schema:
        spelled = st.from_regex(schema["pattern"].replace("$", r"\Z"))
        return spelled.filter(lambda text: shortest <= len(text) <= longest)
    some = st.text("aZ0 _°\U0001f600", min_size=shortest, max_size=min(longest, 8))
    return some | st.just("x" * longest) if longest <= 600 else some


def _integer(schema: dict[str, Any], _root: dict[str, Any]) -> st.SearchStrategy[Any]:
    least = schema.get("minimum", schema.get("exclusiveMinimum", -2) + 1)
    whole = st.integers(least, schema["maximum"]) | st.sampled_from([least, schema["maximum"]])
    return whole | st.just(float(least))


def _number(schema: dict[str, Any], _root: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.floats(schema["minimum"], schema["maximum"], allow_subnormal=False) | st.just(schema["maximum"])


def _array(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[list[Any]]:
    least = schema.get("minItems", 0)
    return st.lists(instances(schema.get("items", True), root), min_size=least, max_size=least + 2)


def _object(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    fields = schema.get("properties", {})
    needed = {name: instances(fields[name], root) for name in schema.get("required", ())}
    optional = {name: instances(each, root) for name, each in fields.items() if name not in needed}
    fixed = st.fixed_dictionaries(needed, optional=optional)
    further = schema.get("additionalProperties", True)
    if further is False:
        return fixed
    names = instances({"type": "string", "maxLength": 5} | schema.get("propertyNames", {}), root)
    more = st.dictionaries(names, instances(further, root), max_size=2)
    return st.builds(lambda extra, own: extra | own, more, fixed)


_OF_TYPE = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "array": _array,
    "object": _object,
    "boolean": lambda schema, root: st.booleans(),
    "null": lambda schema, root: st.none(),
}
