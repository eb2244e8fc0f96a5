"""Writes a value in each style of a query or a form, or refuses a value that has no exact form there.

An empty list and an empty object are written as nothing (RFC 6570, 3.2.1).
Source: OpenAPI 3.0.4 and 3.1.1, "Style Values" and "Style Examples"; RFC 3986; RFC 6570.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final
from urllib.parse import quote

from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidInput, Problem

_SEPARATORS: Final = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_READ_SEPARATORS: Final = {"spaceDelimited": " ", "pipeDelimited": "|"}

Pairs = list[tuple[str, str | None]]


def pairs_of(
    argument: str, name: str, value: Any, style: str, explode: bool, taken: Collection[str], safe: str = ""
) -> Pairs:
    """Return the pairs of a query or a form that carry one value. A member of an object must not have one of the names
    `taken`. The characters `safe` are not encoded.
    """
    if style == "json":
        return [(quoted(name), quote(canonical(value).decode(), safe=safe))]
    parts = list(flat(argument, value))
    is_object, is_list = isinstance(value, dict), isinstance(value, list)
    if style == "deepObject" and is_list:
        raise unsendable(argument, "the style `deepObject` carries an object", "give an object")
    if (is_object or is_list) and not parts:
        return []
    if style == "deepObject" and is_object:
        names = [f"{name}[{key}]" for key, _ in parts]
        # A reader would take a bracket in a name for an object in the object.
        if any(path in taken for path in names) or any("[" in str(key) or "]" in str(key) for key, _ in parts):
            raise unsendable(
                argument, "the name of a member has a bracket, or is that of another parameter", "rename it"
            )
        return [(quoted(path), quote(text, safe=safe)) for path, (_, text) in zip(names, parts, strict=True)]
    if style in _SEPARATORS and not (is_list or (is_object and not explode)):
        raise unsendable(argument, f"the style `{style}` carries a list", "give a list")
    if (explode and not (style in _SEPARATORS and is_object)) or not (is_list or is_object):
        # Readers take `filter[x]` for a member of `filter`.
        if any(key in taken or key.partition("[")[0] in taken for key, _ in parts if key is not None):
            raise unsendable(argument, "a member has the name of another parameter", "leave it out")
        return [(quoted(key if key is not None else name), quote(text, safe=safe)) for key, text in parts]
    # The separator is not encoded. A comma inside a value is encoded; readers split the other styles after decoding.
    texts = [text for key, item in parts for text in ((key, item) if key is not None else (item,))]
    if style in _SEPARATORS and any(_READ_SEPARATORS[style] in text for text in texts):
        raise unsendable(argument, "a value of the list has the separator in it", "give it without")
    return [(quoted(name), _SEPARATORS.get(style, ",").join(quote(text, safe=safe.replace(",", "")) for text in texts))]


def claimed(owners: dict[str, str], owner: str, argument: str, pairs: Pairs) -> Pairs:
    """Return the pairs that `owner` writes, and put their names into `owners`: written name -> owner.

    Raises:
        InvalidInput: another owner wrote one of the names, so a reader cannot tell whose value counts.
    """
    for name, _ in pairs:
        if owners.setdefault(name, owner) != owner:
            detail = f"it writes the name `{name[:80]}`, and so does {owners[name][:80]!a}"
            raise unsendable(argument, detail, "leave the member of that name out of one of them")
    return pairs


def flat(argument: str, value: Any) -> Iterator[tuple[str | None, str]]:
    """Yield (name or None, text) of a single value, of the items of a list, or of the members of an object.

    OpenAPI defines no form for deeper values and for null. They are refused with `InvalidInput`.
    """
    if isinstance(value, dict):
        yield from ((name, written_text(argument, item)) for name, item in value.items())
    elif isinstance(value, list):
        yield from ((None, written_text(argument, item)) for item in value)
    else:
        yield None, written_text(argument, value)


def written_text(argument: str, value: Any) -> str:
    """Return a single value as a text. Raises `InvalidInput` for null, a list and an object."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | dict):
        detail = "the value is null or nested, and has no defined form in this place"
        raise unsendable(argument, detail, "leave it out, or give a single value")
    return canonical(value).decode()


def quoted(text: str) -> str:
    """Return a text with all but unreserved characters percent-encoded."""
    return quote(text, safe="")


def unsendable(argument: str, detail: str, remedy: str) -> InvalidInput:
    """Return the error of an argument that has no exact form in its place."""
    escaped = argument.replace("~", "~0").replace("/", "~1")
    return InvalidInput(Problem(f"/{escaped}", "unsendable_argument", detail, remedy))
