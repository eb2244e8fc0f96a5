"""ConnectionSecrets: where they come from, and that nothing shows them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from contextos.action.secret_redactor import REDACTED
from contextos.adapters.openapi.calls import CredentialSource
from contextos.adapters.openapi.secrets import ConnectionSecrets
from contextos.errors import InvalidSettings

SECRET = "sk+live/9a8b7c"


def held(secret: str = SECRET, place: Any = "bearer") -> ConnectionSecrets:
    return ConnectionSecrets({"api": CredentialSource(place=place, env="API")}, {"API": secret}, Path())


def test_a_secret_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text(SECRET + "\n")
    from_file = ConnectionSecrets({"api": CredentialSource(place="bearer", file="token")}, {}, tmp_path)
    assert from_file.placed(["api"]).headers == held().placed(["api"]).headers == {"Authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize("secret", [None, "", "short", "two\nlines of it", "wïth umlauts", " blank at the ends "])
def test_a_missing_or_malformed_secret_is_refused_and_not_quoted(secret: str | None, tmp_path: Path) -> None:
    env = {} if secret is None else {"API": secret}
    with pytest.raises(InvalidSettings) as refused:
        ConnectionSecrets({"api": CredentialSource(place="bearer", env="API")}, env, tmp_path)
    assert not secret or secret not in str(refused.value)
    with pytest.raises(InvalidSettings):
        ConnectionSecrets({"api": CredentialSource(place="bearer", file="missing")}, {}, tmp_path)


def test_basic_needs_a_user_and_a_password() -> None:
    assert held("user:password", "basic").placed(["api"]).headers == {
        "Authorization": "Basic " + base64.b64encode(b"user:password").decode()
    }
    with pytest.raises(InvalidSettings):
        held("nocolonhere", "basic")


@pytest.mark.parametrize(
    "form", [SECRET, SECRET.upper(), quote(SECRET, safe=""), base64.b64encode(SECRET.encode()).decode()]
)
def test_a_secret_that_comes_back_is_redacted_in_every_form(form: str) -> None:
    value = {"echo": [f"Bearer {form}!"], form: 1}
    assert held().redact(value) == {"echo": [f"Bearer {REDACTED}!"], REDACTED: 1}


def test_the_password_of_basic_is_redacted_alone() -> None:
    assert held("user:pass-word-1", "basic").redact("my pass-word-1") == f"my {REDACTED}"


def test_without_credentials_nothing_is_changed() -> None:
    value: dict[str, Any] = {"a": [1]}
    assert ConnectionSecrets({}, {}, Path()).redact(value) is value


def test_no_representation_shows_a_secret() -> None:
    assert SECRET not in repr(held()) + repr(held().placed(["api"]))


@pytest.mark.parametrize(
    "said",
    [
        r"sk+live\/9a8b7c",
        r"sk\u002Blive/9a8b7c",
        "sk&#43;live&#x2F;9a8b7c",
        "sk+live\u200b/9a8b7c",
        "sk+live/\n9a8b7c",
        "SK+LIVE 9A8B7C",
        "s.k.l.i.v.e.9.a.8.b.7.c",
    ],
)
def test_a_text_with_a_secret_in_disguise_is_dropped_whole(said: str) -> None:
    assert held().redact(f"your token {said} is wrong") == REDACTED


def test_a_text_that_only_looks_alike_is_kept() -> None:
    assert held().redact("sk+live/9a8b") == "sk+live/9a8b"
