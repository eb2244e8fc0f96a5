"""The tables `credentials` and `attachments`: an issuer or a place that cannot be trusted is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings import Settings
from contextos.workspace.settings.calls import AttachmentsSetting, TokenExchangeSetting


def read(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "contextos.toml").write_text(text)
    return Settings.read(tmp_path)


EXCHANGE = """
    [credentials]
    kind = "token_exchange"
    url = "https://login.acme.example/token"
    client_id = "contextos"
    secret_env = "CLIENT_SECRET"
"""


def test_the_issuer_of_credentials(tmp_path: Path) -> None:
    named = read(tmp_path, EXCHANGE + '    issuer = "https://login.acme.example"\n    timeout_s = 9\n').credentials
    url = "https://login.acme.example"
    assert named == TokenExchangeSetting(
        f"{url}/token", "contextos", secret_env="CLIENT_SECRET", issuer=url, timeout_s=9
    )
    assert read(tmp_path, "").credentials is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (EXCHANGE.replace("token_exchange", "token_echange"), "did you mean `token_exchange`"),
        (EXCHANGE.replace("https:", "http:"), "not encrypted"),
        (EXCHANGE.replace("/token", "/token?x=1"), "/credentials/url"),
        (EXCHANGE.replace("secret_env", "secret"), "/credentials/secret"),
        (EXCHANGE.replace("    secret_env", "    # "), "exactly one of `secret_file` and `secret_env`"),
        (EXCHANGE + 'secret_file = "a"', "exactly one of `secret_file` and `secret_env`"),
        (EXCHANGE.replace("CLIENT_SECRET", "hunter2!"), "/credentials/secret_env"),
        (EXCHANGE.replace('"contextos"', "5"), "/credentials/client_id"),
        (EXCHANGE + 'internal = "yes"', "/credentials/internal"),
        (EXCHANGE + "issuer = 5", "/credentials/issuer"),
        (EXCHANGE + f'issuer = "{"i" * 2_000}"', "too long"),
        (EXCHANGE + "timeout_s = 61", "/credentials/timeout_s"),
        ("credentials = 1", "give a table with a `kind`"),
    ],
)
def test_an_issuer_of_credentials_that_is_none_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(tmp_path, text)
    assert says in str(refused.value)


FILES = """
    [attachments.places]
    acme = ["https://files.acme.example/acme/", "https://more.example/"]
"""


def test_the_places_of_attachments(tmp_path: Path) -> None:
    named = read(tmp_path, FILES).attachments
    assert named == AttachmentsSetting({"acme": ("https://files.acme.example/acme/", "https://more.example/")})
    assert read(tmp_path, "").attachments is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (FILES.replace("acme/", "acme"), "ends with `/`"),
        (FILES.replace("https://files.acme.example", "http://127.0.0.1"), "internal"),
        (FILES.replace("https://files.acme.example", "http://files.acme.example"), "not encrypted"),
        (FILES.replace("https://files.acme.example", "s3://files"), "/attachments/places/acme/0"),
        (FILES.replace("acme/", "acme/?a=b/"), "/attachments/places/acme/0"),
        ("[attachments.places]\nacme = []", "/attachments/places/acme"),
        ('[attachments.places]\nacme = "https://files.acme.example/"', "/attachments/places/acme"),
        ("[attachments]\nplaces = 1", "/attachments/places"),
        ("[attachments.places]", "no tenant"),
        ("[attachments]", "`places` is missing"),
        ("attachments = 1", "/attachments"),
        (FILES.replace("[attachments.places]", "[attachments]\ninternal = 1\n[attachments.places]"), "internal"),
    ],
)
def test_a_place_that_is_none_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(tmp_path, text)
    assert says in str(refused.value)
