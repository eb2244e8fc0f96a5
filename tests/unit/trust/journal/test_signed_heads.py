"""A process with store access and without a signing key cannot change what the loop wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from contextos.contracts.journal import Draft, Entry, SignedHead, genesis, link
from contextos.errors import ChainBroken
from contextos.trust.journal.signed_heads import head_payload, is_signed, verify_heads
from contextos.trust.seal import kid_of, verify_signature
from tests.world import APPROVER_KEY, OPERATOR_KEY, public_key


class Keys:
    """Verifies the signatures of one key, for the purpose `head` only, and until it is retired."""

    def __init__(self, seed: bytes = APPROVER_KEY, retired_at_us: int = 1_000) -> None:
        self.public, self.retired_at_us = public_key(seed), retired_at_us

    def verify(self, purpose: str, kid: str, payload: bytes, signature: bytes, *, at_us: int) -> bool:
        if at_us > self.retired_at_us:
            return False
        return purpose == "head" and kid == kid_of(self.public) and verify_signature(self.public, payload, signature)


def head_of(entry: Entry, seed: bytes = APPROVER_KEY) -> SignedHead:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    signature = Ed25519PrivateKey.from_private_bytes(seed).sign(head_payload("t", "run", entry.seq, entry.hash))
    return entry.seq, entry.hash, kid_of(public_key(APPROVER_KEY)), signature.hex()


def stream(*kinds: str) -> list[Entry]:
    made: list[Entry] = []
    for seq, kind in enumerate(kinds, 1):
        before = made[-1].hash if made else genesis("t", "run")
        made.append(link("t", "run", seq, before, Draft(kind, "", seq, "runtime", b"{}", bytes(16))))
    return made


LOOP = stream("run.received", "run.context", "run.pinned")
KEYS: Any = Keys()


def test_a_signed_stream_verifies_and_entries_of_people_may_follow() -> None:
    verify_heads("t", "run", LOOP, [head_of(LOOP[-1])], KEYS)
    answered = stream("run.received", "approval.asked", "approval.answered")
    verify_heads("t", "run", answered, [head_of(answered[1])], KEYS)


@pytest.mark.parametrize(
    ("entries", "heads", "seq"),
    [
        (LOOP, [head_of(LOOP[1])], 3),
        (LOOP, [], 1),
        (LOOP[:2], [head_of(LOOP[2])], 3),
        (stream("run.received", "run.context", "run.ended"), [head_of(LOOP[2])], 3),
        (LOOP, [head_of(LOOP[2], OPERATOR_KEY)], 3),
        (LOOP, [(*head_of(LOOP[2])[:3], "zz")], 3),
        (LOOP, [(0, *head_of(LOOP[2])[1:])], 4),
    ],
)
def test_an_entry_of_the_loop_without_a_valid_head_is_named(
    entries: Sequence[Entry], heads: list[SignedHead], seq: int
) -> None:
    with pytest.raises(ChainBroken) as found:
        verify_heads("t", "run", entries, heads, KEYS)
    assert found.value.seq == seq


def test_a_head_of_another_stream_does_not_count() -> None:
    assert is_signed(head_of(LOOP[0]), "t", "run", KEYS, at_us=1)
    assert not is_signed(head_of(LOOP[0]), "t", "run_2", KEYS, at_us=1)
    assert not is_signed(head_of(LOOP[0]), "u", "run", KEYS, at_us=1)


def test_a_head_over_an_entry_that_is_later_than_the_retirement_of_its_key_is_named() -> None:
    keys: Any = Keys(retired_at_us=2)
    heads = [head_of(LOOP[1]), head_of(LOOP[2])]
    verify_heads("t", "run", LOOP[:2], heads[:1], keys)
    with pytest.raises(ChainBroken, match=r"entry 3: .* retired"):
        verify_heads("t", "run", LOOP, heads, keys)
