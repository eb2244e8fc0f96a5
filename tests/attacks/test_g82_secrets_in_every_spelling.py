"""G82: card numbers over line breaks, bare tokens, hidden characters in mutations, and keys of the runtime."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.encoding.secret_shapes import without_secrets
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext, ToolError
from contextos.deployment.stream.vocabulary import told
from contextos.errors import LostReply
from contextos.runtime.redaction import cleanse_output
from contextos.trust.redact import redact
from contextos.trust.seal import KeyRing
from tests.unit.control.example import pack
from tests.world import TENANT, TestWorld, open_world, request, run

HEX = "9944b09199c62bcf9418ad846dd0e4bbdfc6ee4b"
CARDS = [
    "4111 1111\n1111 1111",
    "4111 1111 \r\n 1111 1111",
    "4111-1111-\n1111-1111",
    "4111111111\n111111",
    "> 4111 1111\n> 1111 1111",
    "4111\t1111\t1111\t1111",
    "4111\n1111\n1111\n1111",
    "4111 1111\u20281111 1111",
    "4111 1111\n\n1111 1111",
    "4111   1111   1111   1111",
    "4111\u30001111\u30001111\u30001111",
    "4111\u00a0\u00a0\u00a01111\u00a01111\u00a01111",
    "- 4111 1111\n- 1111 1111",
    "* 4111 1111\r\n  * 1111 1111",
    "\u2022 4111 1111\n\u2022 1111 1111",
    "| 4111 1111 |\n| 1111 1111 |",
    "4111 1111\u3000\n\u30001111 1111",
]


@pytest.mark.parametrize("said", CARDS)
def test_a_card_number_over_a_line_break_is_redacted(said: str) -> None:
    for value in (said, {"note": [f"my card: {said}."]}):
        cleaned, applied = redact(value, ["pan"])
        assert applied == ("pan",)
        assert "1111" not in json.dumps(cleaned)


@pytest.mark.parametrize(
    "said",
    [
        "1000\n2000\n3000\n4000\n",
        "totals\n12345678\n87654321",
        "9999\n1111\n2222\n3333",
        "2026-05-03\n2026-05-04",
        "1000   2000   3000   4000   5000   6000",
        "- 4111\n- 1111\n- 1111\n- 1111\n- 4000",
        "- 415 555 0132\n- 415 555 0138\n- 415 555 0191",
        "| 2026-05-03 |\n| 2026-05-04 |",
        "4111    1111    1111    1111",
    ],
)
def test_numbers_below_each_other_stay(said: str) -> None:
    assert redact(said, ["pan"]) == (said, ())


@pytest.mark.parametrize(
    "said",
    [
        f"token={HEX}",
        f"https://shop.example/pay?token={HEX}&x=1",
        f"TOKEN: {HEX[:16]}",
        f'{{"token": "{HEX}"}}',
        f"Authorization: Token {HEX}",
        f"api_key={HEX[:20]}",
        "token=aB39" + "aB39" * 8,
        f"id_token={HEX}",
        f"deploy_token={'aB39-_' * 7}",
        f"X-Vault-Token: {HEX}",
        f'{{"ci-deploy-token": "{HEX}"}}',
        f"idToken: {HEX},",
        f"<token>{HEX}</token>",
        f'<auth:Token type="x">\n  {HEX}\n</auth:Token>',
        f"<client_secret><![CDATA[{HEX}]]></client_secret>",
        f"deploy_token={'ab39k' * 8}",
    ],
)
def test_a_bare_token_is_a_secret(said: str) -> None:
    assert HEX[:16] not in without_secrets(said)
    assert "aB39" not in without_secrets(said)
    assert "ab39k" not in without_secrets(said)
    assert redact({"note": said}, ["secret"])[1] == ("secret",)


@pytest.mark.parametrize(
    "said",
    [
        "the token is required",
        f"page_token={HEX}",
        "token=1234567890123456",
        "token: placeholder-of-the-page",
        HEX,
        f"next_token={HEX}&nextToken={HEX}&x-next-page-token: {HEX}",
        f"continuation_token={HEX}, NextContinuationToken: {HEX}, sync_token={HEX}, cursor={HEX}",
        f"<NextToken>{HEX}</NextToken>",
        "id_token=the-token-of-whoever-asks, deploy_token: vault/kv/ci/deploy2",
        "<token>the-word-that-was-read</token><token>1234567890123456</token>",
        '{"token": "0xdAC17F958D2ee523a2206206994597C13D831ec7"}',
        "max_tokens: 1234567890123456, token_count=4096, tokenizer=Llama3TokenizerFast",
    ],
)
def test_what_only_speaks_of_a_token_stays(said: str) -> None:
    assert without_secrets(said) == said
    assert redact({"said": said}, ["secret"]) == ({"said": said}, ())


@pytest.mark.parametrize("name", ["token", "Token", "id_token", "idToken", "deploy-token"])
@pytest.mark.parametrize("value", [HEX, "aB39-_" * 7])
def test_a_member_with_a_token_is_a_secret(name: str, value: str) -> None:
    for beside in ("", "\u00e9"):
        kept, rules = redact({name: value, "beside": beside}, ["secret"])
        assert (kept, rules) == ({name: "[redacted:secret]", "beside": beside}, ("secret",))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token", "aB39" * 5),
        ("token", "the-word-that-was-read-in-the-page"),
        ("token", "0xdAC17F958D2ee523a2206206994597C13D831ec7"),
        *((name, HEX) for name in ("pageToken", "next_token", "continuation_token", "sync_token", "cursor", "tokens")),
    ],
)
def test_a_member_of_a_page_or_with_a_word_is_none(name: str, value: str) -> None:
    assert redact({name: value}, ["secret"]) == ({name: value}, ())


@pytest.mark.parametrize(
    ("part", "rules"),
    [
        ("<token ", ["secret"]),
        ("x_token=", ["secret"]),
        ("token_" * 3 + "<token>", ["secret"]),
        ("4111 1111 |\n- ", ["pan"]),
        ("4   ", ["pan"]),
    ],
)
def test_the_search_takes_time_in_proportion_to_the_text(part: str, rules: list[str]) -> None:
    def seconds(text: str) -> float:
        began = time.process_time()
        redact([text], rules)
        return time.process_time() - began

    seconds(part)
    short, long = (min(seconds(part * times) for _ in range(3)) for times in (4_000, 40_000))
    assert long < 40 * max(short, 0.001)


def test_a_ref_is_no_address() -> None:
    class Pinned:
        kind, key = "run.pinned", ""

    [event] = told(Pinned(), {"pack_ref": "ctxpack.support@5.2.0", "pins": {}})  # type: ignore[arg-type]
    assert event.members["value"]["pack_ref"] == "ctxpack.support@5.2.0"
    for ref in ("agent:contextos/support-refund@1.2.0", "pol.refunds@12.0.10"):
        assert redact(ref, ["email"]) == (ref, ())
    for address in ("ana@shop.example", "ana@5.2.0.example", "ana@xn--bcher-kva.example", "ana@bücher.example"):
        assert redact(address, ["email"]) == ("[redacted:email]", ("email",))


class Talking:
    """The payments of the shop, which say a text in one member of the answer."""

    def __init__(self, inner: Any, place: str, text: str) -> None:
        self.inner, self.place, self.text = inner, place, text

    def describe(self) -> AdapterDefinition:
        found: AdapterDefinition = self.inner.describe()
        return found

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        reply: AdapterReply = await self.inner.call(capability, args, context)
        if self.place == "mutations":
            return reply.model_copy(update={"mutations": (self.text,)})
        if self.place == "error":
            return AdapterReply(error=ToolError(code="declined", message=self.text), had_no_effect=True)
        raise LostReply("adp_payments", self.text)

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        return None


async def _record(world: TestWorld, place: str, text: str) -> tuple[str, dict[str, Any]]:
    talking: Any = Talking(world.adapters["adp_payments"], place, text)
    world.adapters["adp_payments"] = talking
    view = await world.invoke(request(900, "req_talk"))
    store = world.stores.tenant(TENANT)
    entries = [one for stream in ("index", "control", view.run_id) for one in await store.read(stream)]
    text = "\n".join((one.body or b"").decode() + one.key for one in entries)
    bodies = [read_body(one) for one in entries if one.kind == "tool.returned"]
    return text, [one for one in bodies if one and "adp_payments" in one["envelope"]["capability_id"]][-1]["envelope"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("paid\x1b[31m", "an effect with an unsafe name"),
        ("paid\u202egnp.exe", "an effect with an unsafe name"),
        ("paid 4111 1111 1111 1111", "paid [redacted:pan]"),
        (f"paid with token={HEX}", "paid with [redacted:secret]"),
    ],
)
def test_what_is_taken_out_of_mutations_is_said(said: str, kept: str, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, payments="none")
        text, envelope = await _record(world, "mutations", said)
        assert envelope["mutations"] == [kept]
        assert envelope["metadata"]["redaction_applied"] is True
        assert json.dumps(said)[1:-1] not in text
        await world.aclose()

    run(go())


SPELLED: dict[str, Callable[[bytes], str]] = {
    "hex": bytes.hex,
    "HEX": lambda key: key.hex().upper(),
    "pairs": lambda key: key.hex(":"),
    "C": lambda key: ", ".join(f"0x{one:02x}" for one in key),
    "Base64": lambda key: base64.b64encode(key).decode(),
    "Base64 of more": lambda key: base64.urlsafe_b64encode(b"key=" + key + b"\n").decode(),
    "lines": lambda key: "\n".join([key.hex()[:30], key.hex()[30:]]),
    "numbers": lambda key: str(list(key)),
}


@pytest.mark.parametrize("place", ["mutations", "error", "lost"])
@pytest.mark.parametrize("spelling", ["hex", "Base64 of more"])
def test_a_key_of_the_runtime_in_an_answer_is_not_on_record(place: str, spelling: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores="sqlite", payments="none")
        [private] = [key.private_bytes_raw() for purpose, (_, key) in world.keys._signing.items() if purpose == "act"]
        said = SPELLED[spelling](private)
        text, _ = await _record(world, place, f"see {said} .")
        assert json.dumps(said)[1:-1] not in text
        assert private.hex()[:30] not in text.lower()
        await world.aclose()

    run(go())


@pytest.mark.parametrize("spelling", SPELLED)
def test_a_key_in_an_output_is_unsafe_and_a_digest_is_not(spelling: str) -> None:
    ring = KeyRing({"act": b"\x07secret-of-an-operators-act-32by"})
    said = SPELLED[spelling](b"\x07secret-of-an-operators-act-32by")
    assert [one.code for one in cleanse_output(pack({}), ring, {"seen": [said]})[2]] == ["secret"]
    for digest in ("sha256:" + "ab" * 32, ring.public_key("act", ring.kids("act")[0]).hex()):  # type: ignore[union-attr]
        assert cleanse_output(pack({}), ring, {"seen": digest}) == ({"seen": digest}, (), ())
