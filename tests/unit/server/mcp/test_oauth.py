"""Which settings make this server a resource of an issuer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.errors import InvalidSettings
from contextos.server.mcp.oauth import oauth_resource
from contextos.workspace.settings.directory import OidcDirectorySetting

GOOD = OidcDirectorySetting("d", ("ab",), "https://login.acme.example", "https://tools.acme.example/mcp", {"a": "b"})


def resource(directory: Any) -> Any:
    app: Any = SimpleNamespace(settings=SimpleNamespace(directory=directory))
    return oauth_resource(app, "tenant", "agent")


def test_the_audience_of_the_directory_is_the_resource() -> None:
    made = resource(GOOD)
    assert (made.url, made.issuer) == (GOOD.audience, GOOD.issuer)


@pytest.mark.parametrize(
    ("directory", "said"),
    [
        ("directory.json", "takes no tokens"),
        (replace(GOOD, audience="contextos"), "not the URL of an MCP server"),
        (replace(GOOD, audience="https://tools.acme.example/other"), "not the URL of an MCP server"),
        (replace(GOOD, audience="https://tools.acme.example/mcp?x=1"), "not the URL of an MCP server"),
        (replace(GOOD, audience="https://[tools.acme.example/mcp"), "not the URL of an MCP server"),
        (replace(GOOD, audience="https://tools.acme.example:x/mcp"), "not the URL of an MCP server"),
        (replace(GOOD, audience="https://例え.example/mcp"), "not the URL of an MCP server"),
        (replace(GOOD, audience="/mcp"), "not the URL of an MCP server"),
        (replace(GOOD, issuer="acme"), "not a URL"),
        (replace(GOOD, issuer="https://[login.acme.example"), "not a URL"),
    ],
)
def test_other_settings_are_refused(directory: Any, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        resource(directory)
