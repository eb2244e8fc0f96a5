"""One API for the tests of this folder: operations are asked over HTTP."""

from __future__ import annotations

from tests.unit.server.conftest import face, url

__all__ = ["face", "url"]
