"""Sessions of browsers in a store. The attacks are in `tests/attacks/test_f51_browser_sessions.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import SignatureInvalid
from contextos.workspace.logins.sessions import MAX_SESSIONS, BrowserSessions, csrf_token_of, of_text64, text64
from tests.http_face import REQUESTER, http_face


def test_a_session_is_what_it_began_with_and_one_more_than_allowed_ends_the_first(tmp_path: Path) -> None:
    with http_face(tmp_path) as face:
        tokens = face.app.bearer_tokens(bound_to="127.0.0.1")
        sessions = BrowserSessions(face.app.stores, face.app.keys, tokens.clock, tokens.directory.tenants)
        caller = face.call(tokens.caller(face.token(REQUESTER)))

        async def act() -> None:
            cookies = [
                await sessions.begin(caller, {"number": number, "ends_at": caller.expires_at})
                for number in range(MAX_SESSIONS + 1)
            ]
            tenant_id, kept = await sessions.get(cookies[-1])
            assert (tenant_id, kept["number"]) == (caller.tenant_id, MAX_SESSIONS)
            assert (await sessions.get(cookies[1]))[1]["number"] == 1
            over = await sessions.begin(caller, {"ends_at": 1})
            for cookie in (cookies[0], over, f"{cookies[1]}x", "", "a.b.c"):
                with pytest.raises(SignatureInvalid):
                    await sessions.get(cookie)

        face.call(act())


def test_the_token_of_a_page_follows_from_its_cookie() -> None:
    assert csrf_token_of("a.b.c") == csrf_token_of("x.y.c") != csrf_token_of("a.b.d")
    assert of_text64(text64("tenant/é")) == "tenant/é"
    for segment in ("=", "/", "_w"):
        with pytest.raises(SignatureInvalid):
            of_text64(segment)
