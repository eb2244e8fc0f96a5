"""Checks where an operation of a document is: its server and its path."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urljoin

from contextos.adapters.foreign.keywords import Inconvertible
from contextos.adapters.foreign.texts import plain_text

_TEMPLATE: Final = re.compile(r"\{([^{}/?#]{1,200})\}")
_LITERAL: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_DOTS: Final = re.compile(r"/(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)


def refuse_other_server(stated: Any, at_root: Any, server: str) -> None:
    """Refuse an operation whose servers are `stated`, unless one of them is the `server` that is called, or they are
    the servers of the document (`at_root`).

    Raises:
        Inconvertible: the operation is at another server; the text names that server.
    """
    if stated in (None, [], at_root):
        return
    root, urls = _urls(at_root), _urls(stated)
    try:
        whole = [urljoin(root[0] if root else "", one) for one in urls]
    except ValueError:
        raise Inconvertible("the URL of one of its servers is not valid") from None
    if server.rstrip("/") not in [one.rstrip("/") for one in whole]:
        named = f", `{plain_text(whole[0], 100)}`; draft it with that `--server`" if whole else ""
        raise Inconvertible(f"it is at another server than the rest of the document{named}")


def _urls(servers: Any) -> list[str]:
    listed = [one.get("url") for one in servers if isinstance(one, dict)] if isinstance(servers, list) else []
    return [one for one in listed if isinstance(one, str)]


def check_path(path: str, parameters: set[str]) -> None:
    """Refuse the template of a path whose names are not its parameters, or that could lead to another place.

    Raises:
        Inconvertible: the text says which of both.
    """
    before, _, query = path.partition("?")
    named = _TEMPLATE.findall(before)
    if set(named) != parameters or len(named) != len(set(named)):
        raise Inconvertible("the names in its path are not its parameters")
    literal = _TEMPLATE.sub("x", before)
    if not literal.startswith("/") or not _LITERAL.fullmatch(literal + query) or _DOTS.search(literal):
        raise Inconvertible("its path is not a plain path")
