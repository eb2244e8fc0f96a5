"""What is looked for in the bytes of an artifact."""

from __future__ import annotations

import base64
import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway.result_validation import _check_artifacts
from contextos.contracts.envelopes.tool import ToolArtifact
from contextos.runtime.redaction import cleanse_output

TOKEN = "ghp_" + "a1B2" * 9
SAID = f"the key {TOKEN} of bob@example.com"
PNG = b"\x89PNG\r\n\x1a\n" + random.Random(7).randbytes(200_000)


def kept(content: Any, *, rules: tuple[str, ...] = ("secret", "email"), **more: Any) -> dict[str, Any]:
    pack: Any = SimpleNamespace(policy_layer=SimpleNamespace(guardrails=SimpleNamespace(redaction_rules=rules)))
    stated = {"name": "f", "media_type": "application/octet-stream", "content": content, **more}
    (made,), _ = _check_artifacts(partial(cleanse_output, pack, object()), [ToolArtifact.model_validate(stated)])  # type: ignore[arg-type]
    return made


def encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


@pytest.mark.parametrize("rules", [("secret", "email"), ()])
@pytest.mark.parametrize(
    "raw",
    [
        SAID.encode() + b"\xff",
        b"\xff" + SAID.encode(),
        SAID.replace("ghp_", "gh\xffp_").encode("latin-1"),
        SAID.encode("utf-16"),
        b"\x01" + SAID.encode("utf-16-be") + b"\xff",
        SAID.encode("utf-32"),
        PNG + SAID.encode() + PNG,
    ],
)
def test_a_secret_in_bytes_that_are_no_text_is_withheld_without_a_digest(raw: bytes, rules: tuple[str, ...]) -> None:
    for stated in ({"encoding": "base64"}, {}):
        made = kept(encoded(raw), rules=rules, **stated)
        assert "content" not in made
        assert set(made["withheld"]) == {"code", "detail", "size"}, made


@pytest.mark.parametrize("lines", [20, 76, 10_000])
def test_a_text_is_redacted_however_its_base64_is_written(lines: int) -> None:
    text = encoded(SAID.encode())
    for one in (text, text.rstrip("="), base64.urlsafe_b64encode(SAID.encode()).decode()):
        broken = "\n".join(one[at : at + lines] for at in range(0, len(one), lines))
        made = kept(broken, encoding="base64", media_type="text/plain")
        assert made["content"] == "the key [redacted:secret] of [redacted:email]", made


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        ("!!!!", "application/pdf"),
        (encoded(b"ab") + encoded(SAID.encode()), "application/pdf"),
        (encoded(PNG)[:100] + "[credential]" + encoded(PNG), "image/png"),
        ("a", "image/png"),
        (encoded(b"caf\xe9"), "text/plain; charset=latin-1"),
        (encoded("a".encode("utf-16")), " Text/CSV"),
    ],
)
def test_what_is_not_what_it_says_is_withheld(content: str, media_type: str) -> None:
    assert "withheld" in kept(content, encoding="base64", media_type=media_type)


def test_other_bytes_and_texts_are_kept_as_they_are() -> None:
    assert kept(encoded(PNG), encoding="base64", media_type="image/png")["content"] == encoded(PNG)
    for text in ("hello", "abcd", "", "a,b\n1,2", {"a": [1]}, encoded(PNG)):
        assert kept(text)["content"] == text
