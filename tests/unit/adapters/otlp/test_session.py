"""The session to a collector: what it sends and keeps. Attacks: `tests/attacks/test_g133_telemetry_is_a_tenants.py`."""

from __future__ import annotations

import pytest
import requests

from contextos.adapters.otlp.session import collector_session
from contextos.errors import InvalidInput
from tests.loopback import Answer, Asked, serving


def test_only_the_headers_that_are_given_leave_and_an_error_has_only_its_status() -> None:
    heard: list[dict[str, str]] = []

    def answer(asked: Asked) -> Answer:
        heard.append({name.lower(): value for name, value in asked.headers.items()})
        status = 200 if asked.body == b"fine" else 503
        return status, b"said", {"Retry-After": "7", "X-Seen": "said"}

    with serving(answer) as url, collector_session(url, {"x-api-key": "k"}, internal=True) as session:
        fine, failed = (
            session.post(f"{url}/v1/traces", data=data, headers={"x-other": "o"}, timeout=5)
            for data in (b"fine", b"no")
        )
    assert (fine.status_code, fine.content) == (200, b"said")
    assert (failed.status_code, failed.content, dict(failed.headers)) == (503, b"", {"retry-after": "7"})
    for one in heard:
        assert (one["x-api-key"], one["content-type"]) == ("k", "application/x-protobuf")
        assert "x-other" not in one


@pytest.mark.parametrize("status", [300, 302, 304, 307, 399])
def test_a_redirect_is_no_success(status: int) -> None:
    with (
        serving(lambda _asked: (status, b"", {"Location": "/elsewhere"})) as url,
        collector_session(url, {}, internal=True) as session,
        pytest.raises(requests.exceptions.ConnectionError, match=str(status)),
    ):
        session.post(f"{url}/v1/traces", data=b"", timeout=5)


def test_another_endpoint_is_not_asked() -> None:
    with serving(lambda _asked: (200, b"", {})) as url, serving(lambda _asked: (200, b"", {})) as other:
        session = collector_session(url, {}, internal=True)
        with pytest.raises(requests.exceptions.InvalidURL):
            session.post(other, data=b"", timeout=5)


def test_one_that_is_away_is_a_connection_error() -> None:
    with pytest.raises(requests.exceptions.ConnectionError):
        collector_session("http://127.0.0.1:9", {}, internal=True).post("http://127.0.0.1:9/", data=b"", timeout=5)


def test_a_private_address_needs_a_statement() -> None:
    with pytest.raises(InvalidInput):
        collector_session("https://10.0.0.8", {}, internal=False)
