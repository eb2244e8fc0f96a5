"""One API for the tests of this folder: opening a workspace takes a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http_face import HttpFace, http_face


@pytest.fixture(scope="session")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("http")) as made:
        yield made
