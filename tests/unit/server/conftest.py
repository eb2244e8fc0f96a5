"""One API for the tests of this folder: opening a workspace takes a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http_face import HttpFace, http_face, served_url


@pytest.fixture(scope="session")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("http")) as made:
        yield made


@pytest.fixture(scope="session")
def url(face: HttpFace) -> Iterator[str]:
    """The address of a real server of the API."""
    with served_url(face) as address:
        yield address
