"""The table `[browser_logins]`: where browsers see the service, and where they log in, or nothing starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings import Settings
from contextos.workspace.settings.logins import ApprovalLoginsSetting, BrowserLoginsSetting
from contextos.workspace.settings.reading import check_value
from tests.oidc_provider import settings_text

URL = "https://login.acme.example"
GOOD = BrowserLoginsSetting(
    "https://contextos.acme.example", "console", f"{URL}/authorize", f"{URL}/token", secret_file="client.secret"
)


def read(path: Path, text: str) -> Settings:
    (path / "contextos.toml").write_text(text)
    return Settings.read(path)


def test_the_table_is_read(tmp_path: Path) -> None:
    text = settings_text(URL, client_id="console", scopes=["openid", "groups"], max_session_s=600)
    expected = replace(GOOD, scopes=("openid", "groups"), max_session_s=600)
    assert read(tmp_path, text).browser_logins == expected
    assert read(tmp_path, "").browser_logins is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"origin": ""},
        {"origin": "contextos.acme.example"},
        {"origin": "http://contextos.acme.example"},
        {"origin": "https://contextos.acme.example/"},
        {"origin": "https://contextos.acme.example/console"},
        {"origin": "https://contextos.acme.example:443"},
        {"origin": "http://127.0.0.1:80"},
        {"origin": "https://CONTEXTOS.acme.example"},
        {"origin": "https://user@contextos.acme.example"},
        {"origin": "https://contextos.acme.example?x"},
        {"origin": 7},
        {"client_id": ""},
        {"authorization_url": "http://login.acme.example/authorize"},
        {"authorization_url": "javascript:alert(1)"},
        {"token_url": "http://login.acme.example/token"},
        {"token_url": f"{URL}/token?x=1"},
        {"secret_env": "SECRET"},
        {"secret_file": 7},
        {"secret_file": "", "secret_env": "a b"},
        {"scopes": ()},
        {"scopes": ("email",)},
        {"scopes": ("openid email",)},
        {"scopes": "openid"},
        {"scopes": ("openid", "")},
        {"max_session_s": 0},
        {"max_session_s": 86_401},
        {"max_session_s": True},
        {"internal": "yes"},
    ],
    ids=str,
)
def test_a_value_that_is_unsafe_or_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        check_value(BrowserLoginsSetting, replace(GOOD, **wrong))
    check_value(BrowserLoginsSetting, GOOD)


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8765", "http://localhost", "https://a.example:8443"])
def test_an_origin_of_this_machine_needs_no_tls(origin: str) -> None:
    check_value(BrowserLoginsSetting, replace(GOOD, origin=origin))


def test_people_log_in_at_the_issuer_of_the_directory_or_nowhere(tmp_path: Path) -> None:
    text = settings_text(URL)
    with pytest.raises(InvalidSettings, match="knows no users"):
        read(tmp_path, text[text.index("[browser_logins]") :])


def test_a_service_is_reached_over_tls(tmp_path: Path) -> None:
    text = settings_text(URL, origin="http://127.0.0.1:8765")
    assert read(tmp_path, text).browser_logins is not None
    with pytest.raises(InvalidSettings, match="over TLS"):
        read(tmp_path, f'profile = "service"\nenvironment = "prod"\n{text}')


@pytest.mark.parametrize(
    "text", ["browser_logins = 7", "[browser_logins]", settings_text(URL, client="x"), settings_text(URL, scopes=7)]
)
def test_what_is_no_such_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSettings):
        read(tmp_path, text)


@pytest.mark.parametrize("wrong", [7, {"origin": "https://a.example"}])
def test_what_is_no_such_setting_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidSettings):
        check_value(BrowserLoginsSetting, wrong)


LOGINS = """
    [approval_logins]
    issuer = "https://login.acme.example"
    audience = "contextos"
    jwks_url = "https://login.acme.example/jwks.json"
"""


def test_the_issuer_of_logins(tmp_path: Path) -> None:
    named = read(tmp_path, LOGINS + '    algorithms = ["ES256"]\n    max_auth_age_s = 60\n').approval_logins
    url = "https://login.acme.example"
    assert named == ApprovalLoginsSetting(url, "contextos", f"{url}/jwks.json", ("ES256",), max_auth_age_s=60)
    assert read(tmp_path, "").approval_logins is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LOGINS + "max_auth_age_s = 0", "/approval_logins/max_auth_age_s"),
        (LOGINS + "max_auth_age_s = 1e9", "/approval_logins/max_auth_age_s"),
        (LOGINS + 'algorithms = ["HS256"]', "/approval_logins/algorithms/0"),
        (LOGINS + 'algorithms = ["none"]', "this algorithm is not accepted; list some of RS256"),
        (LOGINS + 'algorithms = "ES256"', "/approval_logins/algorithms"),
        (LOGINS + "algorithms = [1]", "/approval_logins/algorithms"),
        (LOGINS.replace("https://login.acme.example/jwks", "http://login.acme.example/jwks"), "not encrypted"),
        (LOGINS.replace("audience", "audienze"), "/approval_logins/audienze"),
        (LOGINS.replace('audience = "contextos"', ""), "`audience` is missing"),
        (LOGINS.replace('audience = "contextos"', 'audience = ""'), "audience"),
        ("approval_logins = 1", "/approval_logins"),
        (LOGINS + "internal = 1", "/approval_logins/internal"),
    ],
    ids=["zero", "float", "shared", "none", "text", "number", "http", "typo", "missing", "empty", "scalar", "internal"],
)
def test_an_issuer_that_cannot_be_trusted_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(tmp_path, text)
    assert says in str(refused.value)
