"""Webhooks are verified by the library of Standard Webhooks, and go nowhere else."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from contextos.adapters.notices.webhook import Webhook, parsed_secrets, signatures
from contextos.errors import ContextOSError, DestinationGone, InvalidInput, InvalidSettings, LostReply, Unavailable
from contextos.service.outbox.notices import Notice
from contextos.store.shared.clock import SystemClock
from tests.loopback import Answer, Asked, serving

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
NOTICE = Notice(
    "msg_1", "run.finished", "t", "run_1", 7, 1_793_000_000_000_000, {"end": "completed"}, "https://c/run_1"
)


def posted(answer: Callable[[Asked], Answer], secrets: str = SECRET, *, internal: bool = True) -> list[Asked]:
    asked: list[Asked] = []

    def serve(one: Asked) -> Answer:
        asked.append(one)
        return answer(one)

    with serving(serve) as url:
        hook = Webhook(f"{url}/hook", lambda: secrets, SystemClock(), internal=internal)
        asyncio.run(hook.send(NOTICE))
    return asked


def took(_: Asked) -> Answer:
    return 204, b"", {}


def test_a_notice_is_signed_as_standard_webhooks_verify_it() -> None:
    (one,) = posted(took)
    headers = dict(one.headers.items())
    found = Verifier(SECRET).verify(one.body, headers)
    assert found["type"] == "run.finished"
    assert found["data"] == {
        "tenant_id": "t",
        "run_id": "run_1",
        "sequence": 7,
        "end": "completed",
        "link": "https://c/run_1",
    }
    assert headers["webhook-id"] == "msg_1"
    for body, secret in ((one.body.replace(b"completed", b"cancelled"), SECRET), (one.body, OTHER)):
        with pytest.raises(WebhookVerificationError):
            Verifier(secret).verify(body, headers)


def test_a_notice_carries_the_trace_of_its_run() -> None:
    trace = {"traceparent": "00-12345678901234567890123456789012-1234567890123456-01", "tracestate": "contextos=1"}
    asked: list[Asked] = []

    def serve(one: Asked) -> Answer:
        asked.append(one)
        return took(one)

    with serving(serve) as url:
        hook = Webhook(f"{url}/hook", lambda: SECRET, SystemClock(), internal=True)
        asyncio.run(hook.send(replace(NOTICE, trace=trace)))
    assert {name: asked[0].headers[name] for name in trace} == trace
    assert "baggage" not in asked[0].headers


def test_with_two_secrets_a_receiver_that_has_either_of_them_verifies() -> None:
    (one,) = posted(took, f"{SECRET}\n{OTHER}\n")
    for secret in (SECRET, OTHER):
        Verifier(secret).verify(one.body, dict(one.headers.items()))


def test_the_signature_is_that_of_the_specification() -> None:
    # The example of the specification's reference implementations.
    (secret,) = parsed_secrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    said = signatures([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert said == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_receiver_that_wants_nothing_more_says_so_with_410() -> None:
    with pytest.raises(DestinationGone, match="under another name"):
        posted(lambda _: (410, b"", {}))


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 429, 500])
def test_what_is_not_taken_is_an_error_and_no_redirect_is_followed(status: int) -> None:
    with pytest.raises(Unavailable, match=str(status)):
        posted(lambda _: (status, b"", {"Location": "http://169.254.169.254/"}))


def test_a_receiver_at_a_private_address_gets_nothing_unless_a_person_said_so() -> None:
    with pytest.raises(InvalidInput, match="not public"):
        posted(took, internal=False)


def test_nobody_who_listens_and_an_answer_without_an_end_are_errors() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hook = Webhook(f"http://127.0.0.1:{port}/", lambda: SECRET, SystemClock(), internal=True)
    with pytest.raises(Unavailable):
        asyncio.run(hook.send(NOTICE))
    with pytest.raises((LostReply, Unavailable)):
        posted(lambda _: (200, b"x" * 100_000, {}))


@pytest.mark.parametrize("secret", ["", "secret", "whsec_", "whsec_AAAA", "whsec_!!!", " ".join([SECRET] * 5)])
def test_a_secret_that_is_none_signs_nothing_and_is_in_no_message(secret: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        parsed_secrets(secret)
    assert "AAAA" not in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_secret_that_was_lost_while_it_ran_sends_nothing() -> None:
    asked: list[Any] = []
    with pytest.raises(ContextOSError):
        posted(lambda one: asked.append(one) or took(one), "")  # type: ignore[func-returns-value]
    assert asked == []
