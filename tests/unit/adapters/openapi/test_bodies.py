"""Bodies: what kind each media type is. What is sent is read back in `tests/e2e/test_openapi_round_trips.py`."""

from __future__ import annotations

import pytest

from contextos.adapters.openapi.bodies import body_kind


@pytest.mark.parametrize(
    ("media", "kind"),
    [
        ("application/json", "json"),
        ("TEXT/JSON; charset=utf-8", "json"),
        ("application/vnd.api+json", "json"),
        ("application/x-www-form-urlencoded", "form"),
        ("multipart/form-data; boundary=x", "multipart"),
        ("text/html", "text"),
        ("application/x-jsonl", "text"),
        ("image/svg+xml", "text"),
        ("application/cbor", "bytes"),
        ("multipart/mixed", None),
        ("text/event-stream", None),
        ("*/*", None),
        ("json", None),
    ],
)
def test_a_media_type_says_how_a_body_is_written(media: str, kind: str | None) -> None:
    assert body_kind(media) == kind
