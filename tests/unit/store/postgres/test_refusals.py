"""A database that cannot be used is refused with one sentence that never holds the password."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.errors import InvalidSettings, Unavailable
from contextos.store.postgres.refusals import refuse_url, start_refusal, unusable, unwrapped, without_password

URL = "postgresql://app:hunter2@db.example:5432/contextos"


@given(st.text(st.characters(codec="ascii", exclude_characters=" \n"), min_size=4, max_size=12))
def test_no_password_is_shown_also_if_it_is_not_percent_encoded(password: str) -> None:
    secret = f"S3{password}3S"
    assert secret not in without_password(f"postgresql://app:{secret}@db.example/contextos?password={secret}")


@pytest.mark.parametrize("url", ["", "mysql://x", "sqlite.db", f"{URL}?sslrootcert=/does/not/exist.pem"])
def test_a_url_that_is_not_usable_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        refuse_url(url)
    assert "hunter2" not in str(refused.value)


def test_a_readable_file_of_a_url_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_text("x")
    refuse_url(f"{URL}?sslrootcert={tmp_path / 'root.pem'}")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (asyncpg.InvalidPasswordError("no"), InvalidSettings),
        (asyncpg.InvalidCatalogNameError("no"), InvalidSettings),
        (asyncpg.InsufficientPrivilegeError("no"), InvalidSettings),
        (ssl.SSLCertVerificationError("no"), InvalidSettings),
        (socket.gaierror(-2, "Name or service not known"), InvalidSettings),
        (ValueError("invalid port: hunter2"), InvalidSettings),
        (ConnectionRefusedError("no"), Unavailable),
        (ssl.SSLEOFError("closed"), Unavailable),
    ],
)
def test_an_error_at_the_start_is_a_setting_or_temporary(fault: BaseException, kind: type[Exception]) -> None:
    refused = start_refusal(URL, fault)
    assert isinstance(refused, kind)
    assert "hunter2" not in str(refused)


def test_a_wrapped_error_of_the_driver_is_found() -> None:
    inner = asyncpg.InvalidPasswordError("no")
    outer = RuntimeError("wrapped")
    outer.__cause__ = inner
    assert unwrapped(outer) is inner
    alone = RuntimeError("alone")
    assert unwrapped(alone) is alone
    assert "app@db.example" in str(unusable(URL, "why", "do that"))
