"""Versions of one pack are not compared: they replace each other."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.errors import InvalidArtifact
from tests.attacks.test_g93_a_limit_sees_every_pack import free, in_tenant, limited, pin


def test_another_version_is_pinned_beside_a_limit_and_another_pack_is_not() -> None:
    async def play(app: Any) -> None:
        await pin(app, limited("tenant", "acme.first"))
        next_version = free()
        next_version["pack_meta"] |= {"pack_id": "acme.first", "pack_version": "1.1.0"}
        await pin(app, next_version)
        with pytest.raises(InvalidArtifact, match=r"`history.paid` of `acme.first@1.0.0` does not count `bank.pay`"):
            await pin(app, free())

    in_tenant(play)
