"""The tables of `directory`: what no signed file and no issuer can have is refused in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings import Settings
from contextos.workspace.settings.directory import OidcDirectorySetting, SignedDirectorySetting

PUBLIC = "ab" * 32


def read(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "contextos.toml").write_text(text)
    return Settings.read(tmp_path)


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
    (OIDC.replace('["RS256"]', '["HS256"]'), "/directory/algorithms/0"),
    (OIDC.replace('["RS256"]', '"RS256"'), "/directory/algorithms"),
    (OIDC.replace('["RS256"]', '["none"]'), "/directory/algorithms/0"),
    (OIDC.replace('["orders.read"]', "[7]"), "/directory/scopes/0"),
    (OIDC.replace("https://login.example/jwks", "http://login.example/jwks"), "/directory/jwks_url"),
    (OIDC.replace('jwks_url = "https://login.example/jwks"\n', ""), "/directory"),
    (OIDC.replace("jwks_url", 'jwks_file = "a"\njwks_url'), "/directory"),
    (OIDC.replace("algorithms", "leeway_s = 301\nalgorithms"), "/directory/leeway_s"),
    (OIDC.replace("algorithms", 'user_claim = ""\nalgorithms'), "/directory/user_claim"),
    (OIDC.replace("algorithms", "organization_claim = 7\nalgorithms"), "/directory/organization_claim"),
    (OIDC.replace("algorithms", "tenant_claim = 7\nalgorithms"), "/directory/tenant_claim"),
    (OIDC.replace("algorithms", "agent_claim = 7\nalgorithms"), "/directory/agent_claim"),
    (OIDC.replace("algorithms", 'clients = "web"\nalgorithms'), "/directory/clients"),
    (OIDC.replace("algorithms", 'clients = [""]\nalgorithms'), "/directory/clients/0"),
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
