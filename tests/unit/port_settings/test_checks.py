"""The tables `keys`, `directory` and `credentials` of the settings: typed, bounded, and without a secret in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.port_settings import (
    ApprovalLoginsSetting,
    AttachmentsSetting,
    OidcDirectorySetting,
    Pkcs8KeysSetting,
    RemoteKeySetting,
    RemoteKeysSetting,
    SignedDirectorySetting,
    TokenExchangeSetting,
)
from contextos.port_settings.checks import check_https, is_loopback, url_parts
from contextos.settings import Settings

PUBLIC = "ab" * 32


def read(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "contextos.toml").write_text(text)
    return Settings.read(tmp_path)


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


def test_keys_in_encrypted_files(tmp_path: Path) -> None:
    text = '[keys]\nkind = "pkcs8"\npath = "sealed"\npassphrase_env = "KEYS_SECRET"\n'
    assert read(tmp_path, text).keys == Pkcs8KeysSetting("sealed", passphrase_env="KEYS_SECRET")


def test_keys_of_a_service(tmp_path: Path) -> None:
    text = f"""
        [keys]
        kind = "remote"
        url = "https://kms.example/v1/keys"
        token_file = "token"
        timeout_s = 2
        [[keys.keys]]
        purpose = "head"
        name = "head/versions/2"
        public_key = "{PUBLIC}"
        [[keys.keys]]
        purpose = "head"
        name = "head/versions/1"
        public_key = "{PUBLIC}"
        retired_at_us = 7
    """
    keys = (
        RemoteKeySetting("head", "head/versions/2", PUBLIC),
        RemoteKeySetting("head", "head/versions/1", PUBLIC, retired_at_us=7),
    )
    assert read(tmp_path, text).keys == RemoteKeysSetting("https://kms.example/v1/keys", keys, "token", timeout_s=2)


ONE = f'[[keys.keys]]\npurpose = "head"\nname = "a"\npublic_key = "{PUBLIC}"'
WRONG = [
    ("keys = 7", "/keys"),
    ('keys = ""', "/keys"),
    ("[keys]", "/keys/kind"),
    ('[keys]\nkind = "plain"', "/keys/kind"),
    ("[keys]\nkind = 7", "/keys/kind"),
    ('[keys]\nkind = "pkcs8"', "/keys"),
    ('[keys]\nkind = "pkcs8"\npassphrase = "secret"', "/keys/passphrase"),
    ('[keys]\nkind = "pkcs8"\npassphrase_file = "a"\npassphrase_env = "A"', "/keys"),
    ('[keys]\nkind = "pkcs8"\npassphrase_env = "not a name"', "/keys/passphrase_env"),
    ('[keys]\nkind = "pkcs8"\npassphrase_file = 7', "/keys/passphrase_file"),
    ('[keys]\nkind = "pkcs8"\npassphrase_env = "A"\npath = ""', "/keys/path"),
    ('[keys]\nkind = "remote"', "/keys/url"),
    ('[keys]\nkind = "remote"\nurl = "https://kms.example"', "/keys/keys"),
    ('[keys]\nkind = "remote"\nurl = "https://kms.example"\nkeys = []', "/keys/keys"),
    ('[keys]\nkind = "remote"\nurl = "https://kms.example"\nkeys = [7]', "/keys/keys/0"),
    ('[keys]\nkind = "remote"\nurl = "https://kms.example"\nkeys = "a"', "/keys/keys"),
    (f'[keys]\nkind = "remote"\nurl = "http://kms.example"\n{ONE}', "/keys/url"),
    (f'[keys]\nkind = "remote"\nurl = "https://name:password@kms.example"\n{ONE}', "/keys/url"),
    (f'[keys]\nkind = "remote"\nurl = "https://:password@kms.example"\n{ONE}', "/keys/url"),
    (f'[keys]\nkind = "remote"\nurl = "https://kms.example/?a=b"\n{ONE}', "/keys/url"),
    (f'[keys]\nkind = "remote"\nurl = "ftp://kms.example"\n{ONE}', "/keys/url"),
    (f'[keys]\nkind = "remote"\nurl = "https://[::1"\n{ONE}', "/keys/url"),
    (f'[keys]\nkind = "remote"\nurl = "https://kms.example"\ntoken = "t"\n{ONE}', "/keys/token"),
    (f'[keys]\nkind = "remote"\nurl = "https://kms.example"\ntimeout_s = 0\n{ONE}', "/keys/timeout_s"),
    (f'[keys]\nkind = "remote"\nurl = "https://kms.example"\n{ONE.replace("head", "heads")}', "/keys/keys/0/purpose"),
    (f'[keys]\nkind = "remote"\nurl = "https://kms.example"\n{ONE.replace("ab", "AB")}', "/keys/keys/0/public_key"),
    (f'[keys]\nkind = "remote"\nurl = "https://kms.example"\n{ONE}\nretired_at_us = -1', "/keys/keys/0/retired_at_us"),
    *(
        (
            f'[keys]\nkind = "remote"\nurl = "https://kms.example"\n{ONE.replace(chr(34) + "a" + chr(34), repr(name))}',
            at,
        )
        for name in ("", "/a", "../a", "a/../b", "a?b", "a#b")
        for at in ("/keys/keys/0/name",)
    ),
]


@pytest.mark.parametrize(("text", "pointer"), WRONG, ids=[text.replace(PUBLIC, "…") for text, _ in WRONG])
def test_a_wrong_table_is_named(tmp_path: Path, text: str, pointer: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(tmp_path, text)
    assert refused.value.problems[0].pointer == pointer
    assert refused.value.problems[0].remedy


@pytest.mark.parametrize("table", ["keys", "credentials", "directory"])
def test_a_table_without_its_kind_says_so(tmp_path: Path, table: str) -> None:
    with pytest.raises(InvalidSettings, match="`kind` is missing; use one of "):
        read(tmp_path, f"[{table}]\n")


def test_a_setting_that_was_built_by_hand_is_held_to_the_same(tmp_path: Path) -> None:
    from contextos.settings import check_settings

    for keys in (Pkcs8KeysSetting(), RemoteKeysSetting("https://kms.example", ({},)), {"kind": "pkcs8"}):  # type: ignore[arg-type]
        with pytest.raises(InvalidSettings):
            check_settings(Settings(tmp_path, keys=keys))  # type: ignore[arg-type]


def test_a_signed_directory(tmp_path: Path) -> None:
    text = f'[directory]\nkind = "signed"\npath = "d.json"\nsigners = ["{PUBLIC}"]\n'
    assert read(tmp_path, text).directory == SignedDirectorySetting("d.json", (PUBLIC,))


OIDC = f"""
[directory]
kind = "oidc"
path = "d.json"
signers = ["{PUBLIC}"]
issuer = "https://login.example"
audience = "contextos"
jwks_url = "https://login.example/jwks"
algorithms = ["RS256"]
scopes = ["orders.read"]
[directory.roles]
b-group = "lead"
a-group = "agent"
"""


def test_users_from_tokens(tmp_path: Path) -> None:
    more = 'clients = ["web"]\nagent_claim = "azp"\ninternal = true\nalgorithms'
    found = read(tmp_path, OIDC.replace("algorithms", more)).directory
    assert isinstance(found, OidcDirectorySetting)
    assert list(found.roles.items()) == [("b-group", "lead"), ("a-group", "agent")], "in the order of the file"
    assert (found.trusted().issuer, found.trusted().algorithms) == ("https://login.example", ("RS256",))
    assert (found.trusted().clients, found.agent_claim, found.internal) == (("web",), "azp", True)


WRONG_DIRECTORIES = [
    ("directory = 7", "/directory"),
    ('[directory]\nkind = "ldap"', "/directory/kind"),
    ('[directory]\nkind = "signed"\npath = "d.json"', "/directory/signers"),
    ('[directory]\nkind = "signed"\npath = "d.json"\nsigners = []', "/directory/signers"),
    ('[directory]\nkind = "signed"\npath = "d.json"\nsigners = "ab"', "/directory/signers"),
    ('[directory]\nkind = "signed"\npath = "d.json"\nsigners = ["ab"]', "/directory/signers/0"),
    (f'[directory]\nkind = "signed"\npath = ""\nsigners = ["{PUBLIC}"]', "/directory/path"),
    (OIDC.replace('issuer = "https://login.example"', 'issuer = ""'), "/directory/issuer"),
    (OIDC.replace('audience = "contextos"', "audience = 7"), "/directory/audience"),
    (OIDC.replace('["RS256"]', '["HS256"]'), "/directory/algorithms"),
    (OIDC.replace('["RS256"]', '"RS256"'), "/directory/algorithms"),
    (OIDC.replace('["RS256"]', '["none"]'), "/directory/algorithms"),
    (OIDC.replace('["orders.read"]', "[7]"), "/directory/scopes"),
    (OIDC.replace("https://login.example/jwks", "http://login.example/jwks"), "/directory/jwks_url"),
    (OIDC.replace('jwks_url = "https://login.example/jwks"\n', ""), "/directory"),
    (OIDC.replace("jwks_url", 'jwks_file = "a"\njwks_url'), "/directory"),
    (OIDC.replace("algorithms", "leeway_s = 301\nalgorithms"), "/directory/leeway_s"),
    (OIDC.replace("algorithms", 'user_claim = ""\nalgorithms'), "/directory/user_claim"),
    (OIDC.replace("algorithms", "organization_claim = 7\nalgorithms"), "/directory/organization_claim"),
    (OIDC.replace("algorithms", "tenant_claim = 7\nalgorithms"), "/directory/tenant_claim"),
    (OIDC.replace("algorithms", "agent_claim = 7\nalgorithms"), "/directory/agent_claim"),
    (OIDC.replace("algorithms", 'clients = "web"\nalgorithms'), "/directory/clients"),
    (OIDC.replace("algorithms", 'clients = [""]\nalgorithms'), "/directory/clients"),
    (OIDC.replace("algorithms", "internal = 1\nalgorithms"), "/directory/internal"),
    (OIDC.replace('"lead"', '""'), "/directory/roles/b-group"),
    (OIDC.partition("[directory.roles]")[0], "/directory/roles"),
    (OIDC.partition("[directory.roles]")[0] + "roles = {}", "/directory/roles"),
]


@pytest.mark.parametrize(("text", "pointer"), WRONG_DIRECTORIES, ids=range(len(WRONG_DIRECTORIES)))
def test_a_wrong_directory_is_named(tmp_path: Path, text: str, pointer: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(tmp_path, text)
    assert refused.value.problems[0].pointer == pointer
    assert refused.value.problems[0].remedy


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_plain_http_stays_on_this_machine(host: str) -> None:
    assert is_loopback(host)
    check_https(f"http://{f'[{host}]' if ':' in host else host}:1/a", "/keys/url")
    assert not is_loopback("localhost.attacker.example")


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
        (LOGINS + 'algorithms = ["HS256"]', "HS256"),
        (LOGINS + 'algorithms = ["none"]', "none"),
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
        ("credentials = 1", "write `[credentials]`"),
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
