"""URLs of services: their parts, and which connections stay private."""

from __future__ import annotations

import pytest

from contextos.contracts.urls import is_loopback, is_private_connection, url_parts


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("https://a.example/x", "a.example"),
        ("http://a.example:8080/x", "a.example"),
        ("https://a.example:0/x", None),
        ("https://a.example:99999/x", None),
        ("https:///x", None),
        ("ftp://a.example/x", None),
        ("https://a.example/x?y=1", None),
    ],
)
def test_what_is_not_a_url_that_a_server_answers_has_no_parts(text: str, host: str | None) -> None:
    assert (url_parts(text).hostname, bool(url_parts(text).scheme)) == (host, host is not None)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_plain_http_stays_on_this_machine(host: str) -> None:
    assert is_loopback(host)
    assert is_private_connection(f"http://{f'[{host}]' if ':' in host else host}:1/a")
    assert not is_loopback("localhost.attacker.example")
    assert not is_private_connection("http://localhost.attacker.example/")
    assert is_private_connection("https://attacker.example/")
