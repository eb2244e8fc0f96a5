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
        absolute = [urljoin(root[0] if root else "", url) for url in urls]
    except ValueError:
        raise Inconvertible("the URL of one of its servers is not valid") from None
    if server.rstrip("/") not in [url.rstrip("/") for url in absolute]:
        hint = f", `{plain_text(absolute[0], 100)}`; draft it with that `--server`" if absolute else ""
        raise Inconvertible(f"it is at another server than the rest of the document{hint}")


def _urls(servers: Any) -> list[str]:
    urls = [server.get("url") for server in servers if isinstance(server, dict)] if isinstance(servers, list) else []
    return [url for url in urls if isinstance(url, str)]


def check_path(path: str, parameters: set[str]) -> None:
    """Refuse the template of a path whose names are not its parameters, or that could lead to another place.

    Raises:
        Inconvertible: the text says which of both.
    """
    path_part, _, query = path.partition("?")
    names = _TEMPLATE.findall(path_part)
    if set(names) != parameters or len(names) != len(set(names)):
        raise Inconvertible("the names in its path are not its parameters")
    literal = _TEMPLATE.sub("x", path_part)
    if not literal.startswith("/") or not _LITERAL.fullmatch(literal + query) or _DOTS.search(literal):
        raise Inconvertible("its path is not a plain path")
