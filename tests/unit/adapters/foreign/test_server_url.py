"""The URL of a foreign server is encrypted and public, unless a person said that it is internal."""

from __future__ import annotations

import pytest

from contextos.adapters.foreign.server_url import check_server_url, is_remote_url
from contextos.errors import InvalidInput


@pytest.mark.parametrize("url", ["http://x.example/", "http://127.0.0.1/", "https://10.0.0.1/", "https://a@x.example/"])
def test_a_url_that_others_can_read_or_that_leads_inside_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        check_server_url(url, internal=False)


@pytest.mark.parametrize("url", ["http://127.0.0.1:80/a", "https://10.0.0.1/"])
def test_an_internal_url_is_one_that_a_person_stated(url: str) -> None:
    check_server_url(url, internal=True)
    check_server_url("https://x.example/a", internal=False)


def test_an_address_that_is_never_allowed_stays_refused() -> None:
    for internal in (True, False):
        with pytest.raises(InvalidInput, match=r"not a public address; name another$"):
            check_server_url("https://169.254.169.254/", internal=internal)
    with pytest.raises(InvalidInput, match="state that it is `internal`, or name another"):
        check_server_url("https://10.0.0.1/", internal=False)


def test_a_loopback_is_not_remote() -> None:
    assert is_remote_url("https://x.example/")
    assert not is_remote_url("http://localhost:1/")
