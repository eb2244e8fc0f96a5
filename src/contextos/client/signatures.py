"""Signs what a program shows: the client makes each statement itself, and compares it with the server's statement.

If the server gives another statement to sign, the client raises `UnfitAnswer` before a key is used.
Source: RFC 7515; docs/adr/0058-a-signature-is-over-what-was-shown.md.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from contextos.contracts.encoding.jcs import canonical, content_address, same_json
from contextos.contracts.statements.acts import ACT_ROUTES
from contextos.contracts.statements.question_text import signed_text
from contextos.contracts.statements.questions import approval_statement
from contextos.errors import ApprovalRefused, InvalidInput, Problem, UnfitAnswer
from contextos.service.views import QuestionDocument, StatementDocument

Sign = Callable[[bytes], bytes | Awaitable[bytes]]
"""bytes to sign -> the Ed25519 signature of 64 bytes, such as `Ed25519PrivateKey.sign`."""

ED25519_BYTES: Final = 64
APPROVAL_TOKEN: Final = "contextos-approval+jws"
ACT_TOKEN: Final = "contextos-act+jws"


async def signed_token(
    inputs: Mapping[str, str],
    statement: Mapping[str, Any],
    typ: str,
    sign: Sign,
    kid: str | None,
    signed_at_s: int | None = None,
) -> str:
    """Return the compact JWS of `statement` by the key `kid`, or by the only key of the person.

    `inputs` has the text to sign by key id, as the server gave it; the text that is signed is made here and compared.
    `signed_at_s` is the time of an act in Unix seconds, by the clock of the signer.

    Raises:
        ApprovalRefused: the directory lists no key of the person (`assertion_invalid`).
        InvalidInput: `kid` is not a listed key, or is missing where several are; or `sign` returned no signature.
        UnfitAnswer: the text from the server is not that of the statement.
    """
    if not inputs:
        raise ApprovalRefused("assertion_invalid", "the directory lists no key with which you could sign")
    if kid is None and len(inputs) == 1:
        [kid] = inputs
    if kid is None or kid not in inputs:
        choices = ", ".join(f"`{name[:80]}`" for name in sorted(inputs)[:8])
        raise InvalidInput(Problem("/kid", "unknown_key", f"your keys are {choices}", "name the one that `sign` uses"))
    iat = {} if signed_at_s is None else {"iat": signed_at_s}
    header, payload = {"alg": "Ed25519", "kid": kid, "typ": typ, **iat}, _segment(statement)
    signing_input = f"{_segment(header)}.{payload}"
    server_header, _, server_payload = inputs[kid].partition(".")
    # The time in the header is the signer's; only without one are the headers the same.
    if server_payload != payload or (signed_at_s is None and server_header != _segment(header)):
        raise UnfitAnswer("what the server gives to sign is not the statement that it shows; nothing was signed")
    result = sign(signing_input.encode())
    signature = await result if inspect.isawaitable(result) else result
    if not isinstance(signature, bytes) or len(signature) != ED25519_BYTES:
        raise InvalidInput(Problem("/sign", "no_signature", "`sign` returned no Ed25519 signature", "return 64 bytes"))
    return f"{signing_input}.{_base64url(signature)}"


def stated_answer(
    question: QuestionDocument, said: StatementDocument, verdict: str, reason: str, person: str | None
) -> dict[str, Any]:
    """Return the statement that `person` signs to answer `question`, made from the question alone.

    With `person` None it names the person whom the server names; the server refuses the signature of anybody else.

    Raises:
        UnfitAnswer: a part of the question does not follow from its content, or a part of `said` (statement, text,
            nonce or passkey challenge) not from the question.
    """
    if len(said.statements) != 1:
        raise UnfitAnswer("the server gives not exactly one statement of the answer; nothing was signed")
    server_statement = said.statements[0].statement
    approver = server_statement.get("approver") if person is None else person
    content = question.content()
    statement = approval_statement(content, str(approver), verdict, reason)
    check_statement(server_statement, statement)
    challenge = _base64url(bytes.fromhex(content_address(statement).removeprefix("sha256:")))
    checks = {
        "text": said.text == signed_text(content, str(approver), verdict, reason),
        "nonce": said.nonce == content_address(statement),
        "passkeys": all(passkey.challenge == challenge for passkey in said.passkeys.values()),
    }
    for name, is_equal in checks.items():
        if not is_equal:
            raise UnfitAnswer(f"`{name}` of the server is not that of the statement; nothing was signed")
    return statement


def act_path(route: str, held: Mapping[str, Any]) -> str:
    """Return the address of a route of acts with its parameter. Raises `InvalidInput` if one of them is unknown."""
    if route not in ACT_ROUTES:
        raise InvalidInput(Problem("/route", "no_act", f"`{route[:80]}` is not a route of acts", ", ".join(ACT_ROUTES)))
    try:
        return "/" + route.format_map({name: quote(str(value), safe="") for name, value in _parameters(held).items()})
    except KeyError as error:
        detail = f"the route has the parameter {error}"
        raise InvalidInput(Problem("/held", "missing", detail, "name it in `held`")) from None


def _parameters(held: Mapping[str, Any]) -> dict[str, Any]:
    proposal = held.get("proposal")
    return {**held, "proposal": proposal["proposal_id"]} if isinstance(proposal, Mapping) else dict(held)


def check_statement(statement: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise `UnfitAnswer` unless the statement equals the expected one."""
    for name in sorted({*statement, *expected}):
        if name not in statement or name not in expected or not same_json(statement[name], expected[name]):
            raise UnfitAnswer(
                f"the statement of the server has another `{name[:80]}` than you asked for; nothing was signed"
            )


def _segment(value: Mapping[str, Any]) -> str:
    return _base64url(canonical(dict(value)))


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
