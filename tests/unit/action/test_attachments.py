"""The check of a file that a request names. The attacks on it are in `tests/attacks/test_d43_attachments.py`."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from contextos.action.attachments import fetch_attachment
from contextos.contracts.envelopes.run import Attachment
from contextos.contracts.ports.outside import AttachedFile


class OneFile:
    """The port `Attachments` with one file for everybody."""

    def __init__(self, media_type: str, content: bytes) -> None:
        self._file = AttachedFile(media_type, content)

    async def fetch(self, _tenant_id: str, _uri: str, _max_bytes: int, _trace: Any) -> AttachedFile:
        return self._file


def fetched(stated: str, served: str, content: bytes = b"{}") -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    wanted = Attachment(artifact_id="art_1", media_type=stated, sha256=digest, uri="https://files.example/a")
    return asyncio.run(fetch_attachment(OneFile(served, content), "acme", wanted, {}))


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "text/csv; charset=utf-8", "application/json", "application/problem+json", "application/yaml"],
)
def test_the_content_of_a_text_is_kept(kind: str) -> None:
    assert fetched(kind, kind)["text"] == "{}"


@pytest.mark.parametrize("kind", ["application/pdf", "image/png", "application/octet-stream", "application/jsonish"])
def test_of_another_file_only_its_size_is_kept(kind: str) -> None:
    body = fetched(kind, kind)
    assert (body["size_bytes"], "text" in body) == (2, False)


def test_parameters_and_case_of_a_media_type_do_not_matter() -> None:
    assert "failure" not in fetched("application/json", "Application/JSON; charset=utf-8")


@pytest.mark.parametrize("served", ["", "text/html", "application/json-seq"])
def test_another_media_type_is_refused(served: str) -> None:
    body = fetched("application/json", served)
    assert (body["failure"]["code"], body.get("size_bytes")) == ("missing_evidence", None)
