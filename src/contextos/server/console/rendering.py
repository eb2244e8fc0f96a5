"""Renders the pages of the console from templates. Text from outside is escaped twice: hidden characters, and HTML.

Times are Unix microseconds. They are written in UTC, and a script shows them in the zone of the reader.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final, NamedTuple

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from contextos.contracts.encoding.display_escape import displayed, displayed_json
from contextos.server.console.assets import asset_address
from contextos.server.console.links import reference_address

PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}
"""The headers of every page, beside those of every answer: nothing but files of this service is run or shown. With
`no-referrer` a browser would not say of a form that it is from here.
"""
_CODE: Final = re.compile(r"`([^`]+)`")
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class CutLines(NamedTuple):
    """The lines `begin` to `end` of `total`, by the group to which they belong."""

    groups: list[tuple[str, Sequence[Any]]]
    begin: int
    end: int
    total: int


def render(
    template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any
) -> HTMLResponse:
    """Return a page. Raises `jinja2.UndefinedError` for a value that the template needs and does not get."""
    html = _TEMPLATES.get_template(template).render(values)
    return HTMLResponse(html, status, {**PAGE_HEADERS, **(headers or {})})


def value_text(value: Any) -> str:
    """Return a value as one line of text, with hidden characters escaped; nothing for None."""
    if value is None or value == "":
        return ""
    return displayed(value) if isinstance(value, str) else displayed_json(value, None)


def json_text(value: Any) -> str:
    """Return a value as JSON on one line, in ASCII."""
    return json.dumps(value, separators=(",", ":"))


@pass_context
def linked(context: Context, value: Any) -> str:
    """Return a value as `value_text` does, as a link if it is a reference that the reader of the page can open."""
    reader, run_id = context.get("reader"), context.get("run_id", "")
    address = reference_address(value, run_id, reader.roles) if isinstance(value, str) and reader is not None else None
    if address is None:
        return value_text(value)
    return Markup('<a href="{}">{}</a>').format(address, value_text(value))


def instant(at_us: int | None) -> str:
    """Return a time as an element with its ISO form; nothing for None."""
    if at_us is None:
        return ""
    at = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" title="{} UTC">{} UTC</time>').format(
        at.isoformat(timespec="milliseconds"), text, text
    )


def lasted(duration_us: int | None) -> str:
    """Return a duration in its two largest units.

    >>> lasted(5_400_000_000), lasted(1_500), lasted(None)
    ('1 h 30 min', '1.5 ms', '')
    """
    if duration_us is None:
        return ""
    if duration_us < 1_000_000:
        return f"{duration_us / 1_000:.3g} ms"
    left, parts = duration_us // 1_000_000, list[str]()
    for unit, seconds in _UNITS:
        if left >= seconds:
            parts.append(f"{left // seconds} {unit}")
            left %= seconds
    return " ".join(parts[:2])


def coded(text: str) -> str:
    """Return a text of the runtime, escaped, with the parts in backticks as code.

    >>> str(coded("`a.b` was < 3"))
    '<code>a.b</code> was &lt; 3'
    """
    parts = _CODE.split(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def package_text(name: str) -> str:
    """Return a file of this package as text."""
    return files("contextos.server.console").joinpath(name).read_text("utf-8")


_TEMPLATES: Final = Environment(
    loader=PackageLoader("contextos.server.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "shown": value_text,
    "instant": instant,
    "lasted": lasted,
    "coded": coded,
    "tojson_text": json_text,
    "linked": linked,
}
_TEMPLATES.globals |= {"t": tomllib.loads(package_text("strings.toml")), "asset": asset_address}
