"""Tokens of the issuers that people have, at every door: one answer on each, and a line in the log for a refusal."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from contextos.contracts.envelopes.identity import MAX_TOKEN_CHARS
from tests.published_issuers import RESOURCE, Shape, doors, shapes, signed

SHAPES = shapes()
OFTEN = ("okta", "ping")
ALL = [pytest.param(one, id=name, marks=() if name in OFTEN else pytest.mark.slow) for name, one in SHAPES.items()]
REFUSED: dict[str, tuple[Callable[[Shape], str], str]] = {
    "for another audience": (
        lambda one: one.token(aud="payroll"),
        f"claim aud: expected `{RESOURCE}`, found `payroll`",
    ),
    "for no audience": (lambda one: one.token(aud=None), f"claim aud: expected `{RESOURCE}`, found nothing"),
    "of an issuer with another slash": (
        lambda one: one.token(iss=one.issuer.removesuffix("/") if one.issuer.endswith("/") else f"{one.issuer}/"),
        "claim iss: expected ",
    ),
    "that has ended": (lambda one: one.token(iat=1_700_000_000, exp=1_700_000_300), "claim exp: expected `after "),
    "that ends in ten years": (lambda one: one.token(exp=2_100_000_000), "claim exp: expected `at most "),
    "that begins tomorrow": (lambda one: one.token(nbf=int(time.time()) + 86_000.5), "claim nbf: expected `at most "),
    "with a time in words": (
        lambda one: one.token(exp="tomorrow"),
        "claim exp: expected `Unix seconds`, found `tomorrow`",
    ),
    "for logging out": (lambda one: one.token({"typ": "logout+jwt"}), "header typ: expected "),
    "with an extension": (lambda one: one.token({"crit": ["exp"]}), "header crit: found "),
    "of a key that is not there": (lambda one: one.token({"kid": "gone"}), "header kid: expected "),
    "of no key": (lambda one: one.token({"kid": None}), "header kid: expected `a text`, found nothing"),
    "by another key of the issuer": (lambda one: one.token(by=_other(one)), "signature"),
    "without an algorithm": (lambda one: one.token({"alg": "none"}), "header alg: expected "),
    "of another client": (lambda one: one.token(azp="evil"), "claim azp: expected "),
    "too long": (
        lambda one: one.token(note=None, more="x" * MAX_TOKEN_CHARS),
        "token: expected `at most 16384 characters`, found ",
    ),
}


def _other(shape: Shape) -> str:
    return {"rsa-1": "rsa-2", "ec-1": "ec-x", "ed-1": "ed-x"}[shape.key]


@pytest.mark.parametrize("shape", ALL)
def test_every_door_gives_one_answer_and_the_log_says_why(
    tmp_path: Path, shape: Shape, caplog: pytest.LogCaptureFixture
) -> None:
    with doors(tmp_path, shape) as opened, caplog.at_level(logging.WARNING, "contextos"):
        assert opened.all_say(shape.token()) == shape.user
        assert opened.fetched == 1, "no header of the answer has the keys fetched for each token"
        for name, (make, line) in REFUSED.items():
            said = make(shape)
            for door, answer in opened.answers(said).items():
                assert answer == 401, (name, door)
            lines = [one.getMessage() for one in caplog.records if one.name == "contextos.identity"]
            assert len(lines) == 6, (name, lines)
            for one in lines:
                assert line in one, name
                assert "a token of `http" in one or "a token of nothing" in one, name
                assert said[:40] not in one, name
                assert len(one) < 600, name
            caplog.clear()
        assert opened.all_say(shape.token(more="x" * 3_000)) == shape.user, "the doors still open"


def test_an_issuer_that_is_down_is_a_503_at_every_door_and_readiness_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shape = SHAPES["okta"]
    with doors(tmp_path, shape) as opened, caplog.at_level(logging.WARNING, "contextos"):
        works, said = opened.keys, shape.token()
        before = opened.face.anonymous("GET", "/v1/ready")
        assert (before.status_code, "issuers" in before.json().get("warnings", ())) == (200, False)
        opened.keys = 500, b"<html>down</html>", {}
        assert opened.all_say(said) == 503
        assert any(shape.issuer in one.getMessage() and "500" in one.getMessage() for one in caplog.records)
        silent = opened.face.anonymous("GET", "/v1/ready")
        assert (silent.status_code, silent.json()["silent_issuers"]) == (200, [shape.issuer])
        assert "issuers" in silent.json()["warnings"]
        opened.keys = works
        while opened.answers(said)["http"] == 503:
            time.sleep(0.2)
        assert opened.all_say(said) == shape.user
        assert "silent_issuers" not in opened.face.anonymous("GET", "/v1/ready").json()


def test_a_rotated_key_counts_once_it_was_looked_for(tmp_path: Path) -> None:
    """The issuer signs with a key that was not there; the clock of the deployment goes on by the time between."""
    shape = SHAPES["okta"]
    with doors(tmp_path, shape) as opened:
        assert opened.all_say(shape.token()) == shape.user
        rotated = {"keys": [{**shape.listed[0], "kid": "new"}, shape.listed[1]]}
        opened.keys = 200, json.dumps(rotated).encode(), {}
        new = signed({"alg": "RS256", "kid": "new"}, shape.claims(), "rsa-2", "RS256")
        jwks = opened.face.app.deployment.ports.directory._jwks
        jwks._tried_at_us -= 31_000_000
        assert opened.all_say(new) == shape.user
        assert opened.all_say(shape.token({"kid": "invented"})) == 401
        assert opened.fetched == 2


def test_the_leeway_is_for_the_beginning_of_a_token_and_its_end_is_the_end(tmp_path: Path) -> None:
    """Its user and their delegation end with it, so a door that took it for a moment longer would only read."""
    shape = SHAPES["okta"]
    now_s = int(time.time())
    with doors(tmp_path, shape) as opened:
        assert opened.all_say(shape.token(iat=now_s + 30, nbf=now_s + 30, exp=now_s + 90)) == shape.user
        assert opened.all_say(shape.token(iat=now_s - 90, exp=now_s - 30)) == 401


def test_two_authorization_headers_are_refused_at_every_door(tmp_path: Path) -> None:
    shape = SHAPES["okta"]
    with doors(tmp_path, shape) as opened:
        twice = [("Authorization", f"Bearer {shape.token()}"), ("Authorization", "Bearer x")]
        assert opened.face.anonymous("GET", "/v1/caller", headers=twice).json()["code"] == "header_twice"
        with httpx.Client(trust_env=False) as client:
            for headers in (twice, twice[::-1]):
                sent: Any = [("Accept", "application/json, text/event-stream"), *headers]
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
                assert client.post(opened.mcp_url, json=body, headers=sent).json()["code"] == "header_twice"
