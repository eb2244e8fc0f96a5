"""Files over HTTP. That only a tenant's own are asked for is shown by `tests/attacks/test_d43_attachments.py`."""

from __future__ import annotations

import asyncio

import pytest

from contextos.adapters.attachments import HttpAttachments
from contextos.errors import InvalidInput, Unavailable
from tests.loopback import serving


def test_a_file_comes_with_the_media_type_that_its_server_states() -> None:
    with serving(lambda _: (200, b"a,b", {"Content-Type": "text/csv"})) as url:
        port = HttpAttachments({"acme": [f"{url}/acme/"]}, internal=True)
        file = asyncio.run(port.fetch("acme", f"{url}/acme/a.csv?signature=1", 99, {}))
        assert (file.media_type, file.content) == ("text/csv", b"a,b")
        assert "a,b" not in repr(file)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_server_that_cannot_answer_now_is_asked_again_later(status: int) -> None:
    with serving(lambda _: (status, b"", {})) as url:
        port = HttpAttachments({"acme": [f"{url}/"]}, internal=True)
        with pytest.raises(Unavailable):
            asyncio.run(port.fetch("acme", f"{url}/a", 99, {}))


@pytest.mark.parametrize("status", [204, 206, 301, 403, 404, 410])
def test_any_other_answer_is_no_file(status: int) -> None:
    with serving(lambda _: (status, b"", {"Location": "/other"})) as url:
        port = HttpAttachments({"acme": [f"{url}/"]}, internal=True)
        with pytest.raises(InvalidInput, match=f"answered {status}"):
            asyncio.run(port.fetch("acme", f"{url}/a", 99, {}))


def test_a_place_at_a_private_address_needs_a_statement() -> None:
    with pytest.raises(InvalidInput, match=r"`10[.]0[.]0[.]1` is not a public address; state that it is `internal`"):
        HttpAttachments({"acme": ["https://10.0.0.1/a/"]})
    HttpAttachments({"acme": ["https://10.0.0.1/a/"]}, internal=True)
    with serving(lambda _: (200, b"", {})) as url:
        name = url.replace("127.0.0.1", "localhost")
        port = HttpAttachments({"acme": [f"{name}/"]})
        with pytest.raises(InvalidInput):
            asyncio.run(port.fetch("acme", f"{name}/a", 99, {}))


@pytest.mark.parametrize("internal", [True, False])
def test_a_place_from_which_nothing_is_ever_fetched_is_refused_at_the_start(*, internal: bool) -> None:
    with pytest.raises(InvalidInput, match=r"`169[.]254[.]169[.]254` is not a public address; name another"):
        HttpAttachments({"acme": ["https://169.254.169.254/"]}, internal=internal)
