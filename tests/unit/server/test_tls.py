"""TLS of a server: which files are its certificate and key, and which address needs one."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.server.tls import check_reach, hosts_of, tls_context
from tests.certificates import certificate


def test_a_certificate_with_its_key_is_tls_1_2_or_newer(tmp_path: Path) -> None:
    context = tls_context(*certificate(tmp_path))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.protocol is ssl.PROTOCOL_TLS_SERVER


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    key.chmod(0o640)
    with pytest.raises(InvalidSettings, match="can be read by others"):
        tls_context(chain, key)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("no chain", "`nothing` cannot be read: no such file"),
        ("no key", "`nothing` cannot be read: no such file"),
        ("another key", "not a certificate with its key: they do not fit"),
        ("a passphrase", "`tls.key` has a passphrase"),
        ("swapped", "`tls.key` has no certificate in PEM"),
        ("no PEM", "`test_tls.py` has no certificate in PEM"),
        ("a folder", "`more` cannot be read: it is not a regular file"),
        ("a chain as key", "`tls.crt` has no private key in PEM"),
        ("cut", "not a certificate with its key: they do not fit"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, broken: str, says: str) -> None:
    chain, key = certificate(tmp_path)
    (tmp_path / "more").mkdir()
    other = certificate(tmp_path / "more", passphrase=b"secret" if broken == "a passphrase" else b"")[1]
    pairs = {
        "no chain": (tmp_path / "nothing", key),
        "no key": (chain, tmp_path / "nothing"),
        "another key": (chain, other),
        "a passphrase": (chain, other),
        "swapped": (key, key),
        "no PEM": (Path(__file__), key),
        "a folder": (chain, tmp_path / "more"),
        "a chain as key": (chain, chain),
        "cut": (tmp_path / "cut.pem", key),
    }
    (tmp_path / "cut.pem").write_bytes(chain.read_bytes()[:200])
    with pytest.raises(InvalidSettings, match=says):
        tls_context(*pairs[broken])


@pytest.mark.parametrize(
    ("is_loopback", "has_tls", "behind_tls_proxy"),
    [(True, False, False), (True, True, False), (False, True, False), (False, False, True)],
)
def test_other_machines_are_served_over_tls(is_loopback: bool, has_tls: bool, behind_tls_proxy: bool) -> None:
    check_reach(is_loopback, has_tls=has_tls, behind_tls_proxy=behind_tls_proxy)


@pytest.mark.parametrize(
    ("is_loopback", "has_tls", "behind_tls_proxy", "code"),
    [
        (False, False, False, "not_loopback"),
        (True, False, True, "no_effect"),
        (False, True, True, "no_effect"),
        (True, True, True, "no_effect"),
    ],
)
def test_an_address_without_tls_and_a_proxy_without_effect_are_refused(
    is_loopback: bool, has_tls: bool, behind_tls_proxy: bool, code: str
) -> None:
    with pytest.raises(InvalidSettings) as refused:
        check_reach(is_loopback, has_tls=has_tls, behind_tls_proxy=behind_tls_proxy)
    assert refused.value.problems[0].code == code


@pytest.mark.parametrize("stated", ["", "a b", "user@api.example", "https://api.example", "api.example/v1", "a:b"])
def test_what_is_not_the_host_of_a_request_is_refused(stated: str) -> None:
    with pytest.raises(InvalidSettings, match="is not the host of a request"):
        hosts_of(["127.0.0.1:8765", stated])
    assert hosts_of(["API.acme.example", "[::1]:8765"]) == ["api.acme.example", "[::1]:8765"]
