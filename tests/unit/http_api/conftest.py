"""One API for the tests of this folder: opening a workspace takes a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import uvicorn

from contextos.server.serving import listen
from tests.http_face import HttpFace, http_face


@pytest.fixture(scope="session")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("http")) as made:
        yield made


@pytest.fixture(scope="session")
def url(face: HttpFace) -> Iterator[str]:
    """The address of a real server of the API, on the loop of the deployment."""
    bound = listen("127.0.0.1:0")
    server = uvicorn.Server(uvicorn.Config(face.api, lifespan="off", log_level="critical", access_log=False))

    async def serve() -> None:
        await server.serve(sockets=[bound])

    done = face.begin(serve())
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    server.should_exit = True
    done.result(30)
