"""The members of an adapter file: what has no effect is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from contextos.adapters.openapi.calls import CredentialSource, OpenApiConnection


@pytest.mark.parametrize(
    "stated",
    [
        {"place": "bearer"},
        {"place": "bearer", "env": "A", "file": "a"},
        {"place": "bearer", "env": "A", "name": "X"},
        {"place": "header", "env": "A"},
        {"place": "header", "env": "A", "name": "X\r\nY"},
        {"place": "header", "env": "lower", "name": "X"},
        {"place": "elsewhere", "env": "A"},
        {"place": "bearer", "token": "secret"},
    ],
)
def test_a_credential_that_contradicts_itself_is_refused(stated: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CredentialSource.model_validate(stated)


def test_an_unknown_member_of_a_connection_is_refused() -> None:
    with pytest.raises(ValidationError):
        OpenApiConnection.model_validate({"kind": "openapi", "server": "https://a.example", "verify": False})
