"""Checks the URL of a foreign server (encrypted and public, unless a person said that it is internal), and says how
calls to the server authenticate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from contextos.adapters.outbound import destination, internal_address_fault
from contextos.contracts.envelopes.tool import Authentication
from contextos.contracts.urls import is_loopback
from contextos.errors import InvalidInput, Problem

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
"""The name of an environment variable."""


def check_server_url(url: str, *, internal: bool) -> None:
    """Refuse the URL of a server that others on the way can read, or that leads to a special address.

    Raises:
        InvalidInput: the URL is refused; the error names the remedy.
    """
    place = destination(url)
    if fault := internal_address_fault(place.host, internal=internal):
        raise bad_connection("/url", *fault)
    if place.scheme == "http" and not (internal and is_loopback(place.host)):
        remedy = "write `https://`; on this machine set `internal`"
        raise bad_connection("/url", "the connection is not encrypted", remedy)


def is_remote_url(url: str) -> bool:
    """Return whether a URL leads to another machine, as far as its host says."""
    return not is_loopback(destination(url).host)


def bad_connection(where: str, detail: str, remedy: str) -> InvalidInput:
    """Return the error for the member `where` of the connection of an adapter file."""
    return InvalidInput(Problem(f"/connection{where}", "bad_connection", detail, remedy))


def authentication(audience: str | None, variables: Iterable[str]) -> Authentication:
    """Return how calls authenticate: with a token that is issued for each call to `audience`, with the secrets in these
    environment variables, or not at all.
    """
    if audience is not None:
        return Authentication(mode="exchange", audience=audience)
    return static_authentication(f"env:{name}" for name in variables)


def static_authentication(references: Iterable[str]) -> Authentication:
    """Return how calls authenticate with the secrets of these references (`env:NAME`, `file:PATH`), or not at all."""
    credentials = tuple(sorted(set(references)))
    return Authentication(mode="static", credentials=credentials) if credentials else Authentication(mode="none")
