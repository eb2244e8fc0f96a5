"""The tables of `keys`: typed, bounded, and without a secret in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings import Settings, check_settings
from contextos.workspace.settings.keys import Pkcs8KeysSetting, RemoteKeySetting, RemoteKeysSetting

PUBLIC = "ab" * 32


def read(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "contextos.toml").write_text(text)
    return Settings.read(tmp_path)


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

    for keys in (Pkcs8KeysSetting(), RemoteKeysSetting("https://kms.example", ({},)), {"kind": "pkcs8"}):  # type: ignore[arg-type]
        with pytest.raises(InvalidSettings):
            check_settings(Settings(tmp_path, keys=keys))  # type: ignore[arg-type]
