"""D26, signatures: a key that signs everything, a second spelling of one signature, and assertions that are none."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.deployment import operator
from contextos.errors import ApprovalRefused, InvalidSettings
from contextos.trust.approvals.assertion import APPROVAL_TYP, sign_approval
from contextos.trust.identity.jws import verify_compact
from contextos.trust.seal import KeyRing, kid_of, verify_signature
from tests.e2e.test_settlements import DID_NOT, uncertain
from tests.world import APPROVER, APPROVER_KEY, TENANT, TestWorld, open_world, public_key, request, run

P = 2**255 - 19
ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
"""The y of a point of order 8; -y is the other one (RFC 7748, section 7; the lists of Ed25519 test vectors)."""

SMALL_ORDER = [0, 1, P - 1, P, P + 1, ORDER_8, P - ORDER_8]
SIGNS_ALL = (1).to_bytes(32, "little") + bytes(32)
"""R is the neutral point and S is 0. Under a key of small order this is a signature over one message in 8 or more."""

Vouch = Callable[[Mapping[str, Any]], Any]


def encoded(y: int, sign: int) -> bytes:
    return (y | sign << 255).to_bytes(32, "little")


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("y", SMALL_ORDER)
def test_no_key_of_small_order_verifies_anything(y: int, sign: int) -> None:
    key = encoded(y, sign)
    assert not any(verify_signature(key, b"pay %d" % number, SIGNS_ALL) for number in range(200))
    with pytest.raises(InvalidSettings):
        KeyRing({}, {"export": [key]})


def segment(value: Any) -> str:
    return base64.urlsafe_b64encode(canonical(value)).rstrip(b"=").decode()


def forged(statement: Mapping[str, Any]) -> dict[str, Any]:
    """A signature by nobody: what anybody can make where the directory lists the neutral point as a key."""
    header = segment({"alg": "Ed25519", "kid": kid_of(encoded(1, 0)), "typ": APPROVAL_TYP})
    signature = base64.urlsafe_b64encode(SIGNS_ALL).rstrip(b"=").decode()
    return {"kind": "jws", "token": f"{header}.{segment(dict(statement))}.{signature}"}


def honest(statement: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": "jws", "token": sign_approval(APPROVER_KEY, kid_of(public_key(APPROVER_KEY)), statement)}


MALFORMED: dict[str, Vouch] = {
    "none": lambda _: None,
    "a text": lambda _: "jws",
    "a list": lambda _: [1],
    "empty": lambda _: {},
    "another kind": lambda _: {"kind": "none"},
    "a kind that is not a text": lambda _: {"kind": ["jws"]},
    "without a token": lambda _: {"kind": "jws"},
    "a token that is not a text": lambda _: {"kind": "jws", "token": 5},
    "a token of bytes": lambda said: {"kind": "jws", "token": honest(said)["token"].encode()},
    "a token beyond ASCII": lambda said: {"kind": "jws", "token": honest(said)["token"] + "\ud800"},
    "a token of 10 MB": lambda _: {"kind": "jws", "token": "." * 10_000_000},
    "a member nobody knows": lambda said: honest(said) | {"note": "x"},
    "a member of 10 MB": lambda said: honest(said) | {"note": "x" * 10_000_000},
    "a member that is no JSON": lambda said: honest(said) | {"note": object()},
    "a token for a person without a key": lambda said: honest(said) | {"kind": "unsafe_local"},
    "a key of small order": forged,
}


def test_a_signature_has_one_spelling() -> None:
    key = {kid_of(public_key(APPROVER_KEY)): public_key(APPROVER_KEY)}
    tokens = [honest({"reason": f"{number}"})["token"] for number in range(8)]
    for token in tokens:
        assert verify_compact(token, key, APPROVAL_TYP) is not None
        signed, _, signature = token.rpartition(".")
        other = signature.replace("-", "+").replace("_", "/")
        spellings = [
            f"{signed}.{signature}=",
            f"{signed}.{signature}==",
            f" {token}",
            f"{token}\n",
            f"{signed}.{other}",
        ]
        spellings += [f"{signed}.{signature[:-1]}{letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
        for one in {*spellings} - {token}:
            assert verify_compact(one, key, APPROVAL_TYP) is None, one
    assert any("-" in token or "_" in token for token in tokens), (
        "one of them is spelled differently in the other alphabet"
    )


async def approve(world: TestWorld, run_id: str, vouch: Vouch) -> None:
    await operator.answer_approval(
        world.deployment,
        TENANT,
        run_id,
        approver_id=APPROVER,
        verdict="approved",
        reason="as agreed",
        binding_digest=await world.binding_digest(run_id),
        vouch=vouch,
    )


def test_an_assertion_that_is_none_is_refused_and_stores_nothing(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, unsafe=("unsafe_local_approvals",))
        weak = encoded(1, 0)
        world.edit_directory(
            lambda tenant: [
                one["keys"].append({"kid": kid_of(weak), "public_key": weak.hex()})
                for one in tenant["approvers"]
                if one["approver_id"] == APPROVER
            ]
        )
        waiting = await world.invoke(request(4200, "req_1"))
        before = await world.kinds(waiting.run_id)
        for name, vouch in MALFORMED.items():
            with pytest.raises(ApprovalRefused) as refused:
                await approve(world, waiting.run_id, vouch)
            assert refused.value.reason == "assertion_invalid", name
            assert await world.kinds(waiting.run_id) == before, name
        await approve(world, waiting.run_id, honest)
        await world.deployment.advance(TENANT, waiting.run_id)
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        await world.aclose()

    run(go())


def test_a_settlement_with_such_an_assertion_is_refused_and_stores_nothing(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path, stores=stores, unsafe=("unsafe_local_approvals",))
        before = await world.kinds(run_id)
        for name, vouch in list(MALFORMED.items())[:-1]:
            with pytest.raises(ApprovalRefused) as refused:
                await operator.settle_effect(world.deployment, TENANT, run_id, DID_NOT, vouch=vouch)
            assert refused.value.reason == "assertion_invalid", name
            assert await world.kinds(run_id) == before, name
        await world.aclose()

    run(go())
