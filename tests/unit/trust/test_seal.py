"""Signatures: what is verified is what is returned, and only the right key for the right purpose counts."""

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import Key, SSlibKey

from contextos.errors import InvalidSettings, SignatureInvalid
from contextos.trust.seal import (
    MAX_SIGNATURES,
    KeyRing,
    decode_base64,
    kid_of,
    open_sealed,
    pae,
    seal,
    verify_signature,
)

TYPE = "application/vnd.contextos.pack+json"
RING = KeyRing.from_seed(b"\x01" * 32)
OTHER = KeyRing.from_seed(b"\x02" * 32)
PAYLOAD = b'{"a":1}'


def opened(envelope: Any, ring: KeyRing = RING, purpose: Any = "pack", types: Any = (TYPE,)) -> bytes:
    return open_sealed(envelope, ring, purpose, types)


def sslib_key(ring: KeyRing, purpose: str) -> Key:
    kid = ring.kids(purpose)[0]
    public = ring.public_key(purpose, kid)
    assert public is not None
    return SSlibKey(kid, "ed25519", "ed25519", {"public": public.hex()})


def test_the_pre_authentication_encoding_is_the_published_one() -> None:
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("http://example.com/HelloWorld", b"hello world") == expected


def test_lengths_count_bytes_and_not_characters() -> None:
    assert pae("é", "ü!".encode()) == "DSSEv1 2 é 3 ü!".encode()


@given(st.binary(max_size=200), st.text(max_size=20))
def test_a_sealed_payload_opens_to_the_same_bytes(payload: bytes, kind: str) -> None:
    kind = kind.encode("utf-8", "replace").decode()
    envelope = json.loads(json.dumps(seal(kind, payload, RING, "pack")))
    assert opened(envelope, types=[kind]) == payload


def test_an_independent_implementation_accepts_our_envelope_and_no_altered_one() -> None:
    envelope = seal(TYPE, PAYLOAD, RING, "pack")
    Envelope.from_dict(copy.deepcopy(envelope)).verify([sslib_key(RING, "pack")], 1)
    envelope["payload"] = base64.b64encode(b'{"a":2}').decode()
    with pytest.raises(VerificationError):
        Envelope.from_dict(envelope).verify([sslib_key(RING, "pack")], 1)


def test_an_envelope_of_an_independent_implementation_is_opened() -> None:
    kid, signature = RING.sign("pack", Envelope(PAYLOAD, TYPE, {}).pae())
    made = {
        "payload": base64.b64encode(PAYLOAD).decode(),
        "payloadType": TYPE,
        "signatures": [{"keyid": kid, "sig": base64.b64encode(signature).decode()}],
    }
    assert opened(made) == PAYLOAD


def test_a_key_of_another_ring_or_another_purpose_opens_nothing() -> None:
    envelope = seal(TYPE, PAYLOAD, RING, "pack")
    for ring, purpose in [(OTHER, "pack"), (RING, "export"), (RING, "head"), (RING, "unknown")]:
        with pytest.raises(SignatureInvalid, match="trusted for"):
            opened(envelope, ring, purpose)


@pytest.mark.parametrize("field", ["payload", "payloadType", "sig"])
def test_an_altered_byte_anywhere_is_refused(field: str) -> None:
    envelope = seal(TYPE, PAYLOAD, RING, "pack")
    if field == "payload":
        envelope["payload"] = base64.b64encode(b'{"a":2}').decode()
    elif field == "payloadType":
        envelope["payloadType"] = TYPE.upper()
    else:
        raw = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
        raw[0] ^= 1
        envelope["signatures"][0]["sig"] = base64.b64encode(raw).decode()
    with pytest.raises(SignatureInvalid):
        opened(envelope, types=[TYPE, TYPE.upper()])


@pytest.mark.parametrize("hint", ["", "kid_0000000000000000", None, 7, OTHER.kids("pack")[0]])
def test_the_key_id_is_a_hint_and_decides_nothing(hint: Any) -> None:
    envelope = seal(TYPE, PAYLOAD, RING, "pack")
    envelope["signatures"][0]["keyid"] = hint
    assert opened(envelope) == PAYLOAD


def test_the_key_id_of_a_trusted_key_does_not_lend_its_trust() -> None:
    forged = seal(TYPE, PAYLOAD, OTHER, "pack")
    forged["signatures"][0]["keyid"] = RING.kids("pack")[0]
    with pytest.raises(SignatureInvalid):
        opened(forged)


def test_one_good_signature_among_others_is_enough() -> None:
    envelope = seal(TYPE, PAYLOAD, RING, "pack")
    envelope["signatures"].insert(0, seal(TYPE, PAYLOAD, OTHER, "pack")["signatures"][0])
    assert opened(envelope) == PAYLOAD


def test_no_signatures_and_too_many_are_refused_before_any_is_checked() -> None:
    envelope = seal(TYPE, PAYLOAD, RING, "pack")
    one = envelope["signatures"][0]
    for signatures in ([], [one] * (MAX_SIGNATURES + 1), None, "x", {"0": one}):
        with pytest.raises(SignatureInvalid, match="1 to 16 signatures"):
            opened({**envelope, "signatures": signatures})


@pytest.mark.parametrize("broken", [None, 1, "x", [], {}, {"payloadType": TYPE}, {"payloadType": [TYPE]}])
def test_a_value_that_is_no_envelope_is_refused(broken: Any) -> None:
    with pytest.raises(SignatureInvalid):
        opened(broken)


@pytest.mark.parametrize("entry", [None, "x", {}, {"sig": None}, {"sig": "!!"}, {"sig": ""}, {"sig": "AAAA"}])
def test_a_signature_that_is_none_is_refused(entry: Any) -> None:
    with pytest.raises(SignatureInvalid):
        opened({**seal(TYPE, PAYLOAD, RING, "pack"), "signatures": [entry]})


def test_an_unexpected_payload_type_is_refused_even_when_well_signed() -> None:
    envelope = seal("application/vnd.contextos.export+json", PAYLOAD, RING, "pack")
    with pytest.raises(SignatureInvalid, match="not expected here"):
        opened(envelope)
    with pytest.raises(SignatureInvalid, match="not expected here"):
        opened(envelope, types=[])


def test_unknown_fields_of_an_envelope_change_nothing() -> None:
    envelope = seal(TYPE, PAYLOAD, RING, "pack")
    envelope["extra"] = {"payload": "x"}
    envelope["signatures"][0]["alg"] = "none"
    assert opened(envelope) == PAYLOAD


@given(st.binary(max_size=64))
def test_both_alphabets_with_and_without_padding_are_read(raw: bytes) -> None:
    for text in (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
        assert decode_base64(text) == raw
        assert decode_base64(text.rstrip("=")) == raw


@pytest.mark.parametrize(
    "text",
    [
        "QQ=",
        "QR==",
        "QUJ=",
        "QQ==\n",
        " QQ==",
        "Q Q=",
        "Q",
        "QUJDR",
        "+_==",
        "-/AA",
        "QQ===",
        "====",
        "=",
        "QQ==QQ==",
        "é",
        None,
        5,
        b"QQ==",
    ],
)
def test_base64_that_two_readers_could_read_differently_is_refused(text: Any) -> None:
    with pytest.raises(SignatureInvalid):
        decode_base64(text)


def test_a_ring_signs_only_for_the_purposes_it_has_a_key_for() -> None:
    ring = KeyRing({"head": b"\x05" * 32})
    kid, signature = ring.sign("head", b"x")
    assert ring.verify("head", kid, b"x", signature)
    assert not ring.verify("claim", kid, b"x", signature)
    assert ring.kids("claim") == ()
    with pytest.raises(InvalidSettings, match="no key to sign `claim`"):
        ring.sign("claim", b"x")


def test_a_rotated_key_still_verifies_and_no_longer_signs() -> None:
    old, new = KeyRing({"head": b"\x05" * 32}), b"\x06" * 32
    old_kid, signature = old.sign("head", b"x")
    public = old.public_key("head", old_kid)
    assert public is not None
    ring = KeyRing({"head": new}, {"head": [public]})
    assert ring.verify("head", old_kid, b"x", signature)
    assert ring.sign("head", b"x")[0] == ring.kids("head")[0] != old_kid
    assert ring.public_key("claim", old_kid) is None


def test_a_retired_key_signs_nothing_and_verifies_what_is_older() -> None:
    old = KeyRing({"head": b"o" * 32})
    kid, signature = old.sign("head", b"x")
    ring = KeyRing({"head": b"n" * 32}, {"head": [old.public_key("head", kid) or b""]}, {kid: 5})
    assert [ring.verify("head", kid, b"x", signature, at_us=at) for at in (None, 4, 5, 6)] == [True, True, True, False]
    with pytest.raises(InvalidSettings, match="retired"):
        KeyRing({"head": b"o" * 32}, None, {kid: 5})


def test_one_key_for_two_purposes_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="given for `head` and for `pack`"):
        KeyRing({"head": b"\x05" * 32, "pack": b"\x05" * 32})
    public = KeyRing({"head": b"\x05" * 32}).public_key("head", KeyRing({"head": b"\x05" * 32}).kids("head")[0])
    assert public is not None
    with pytest.raises(InvalidSettings, match="one key per purpose"):
        KeyRing({"head": b"\x05" * 32}, {"pack": [public]})


@pytest.mark.parametrize(
    ("signing", "trusted"),
    [
        ({"root": b"\x05" * 32}, {}),
        ({"head": b"\x05" * 31}, {}),
        ({"head": "05" * 32}, {}),
        ({}, {"root": []}),
        ({}, {"head": [b"short"]}),
        ({}, {"head": [bytes([n]) * 32 for n in range(33)]}),
    ],
)
def test_a_malformed_key_or_purpose_is_refused(signing: Any, trusted: Any) -> None:
    with pytest.raises(InvalidSettings):
        KeyRing(signing, trusted)


def test_a_seed_gives_one_key_per_purpose_and_always_the_same() -> None:
    kids = [RING.kids(purpose)[0] for purpose in ("head", "claim", "export", "pack")]
    assert len(set(kids)) == 4
    again = KeyRing.from_seed(b"\x01" * 32)
    assert kids == [again.kids(purpose)[0] for purpose in ("head", "claim", "export", "pack")]
    with pytest.raises(InvalidSettings, match="32 bytes"):
        KeyRing.from_seed(b"\x01" * 16)


def test_key_objects_are_taken_as_they_are() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(b"\x05" * 32)
    ring = KeyRing({"head": key}, {"claim": [Ed25519PrivateKey.from_private_bytes(b"\x06" * 32).public_key()]})
    assert ring.kids("head") == (kid_of(key.public_key().public_bytes_raw()),)
    assert len(ring.kids("claim")) == 1


def test_a_key_from_a_directory_is_held_to_its_length_and_its_signature() -> None:
    kid, signature = RING.sign("head", b"x")
    public = RING.public_key("head", kid)
    assert public is not None
    assert verify_signature(public, b"x", signature)
    assert not verify_signature(public, b"y", signature)
    assert not verify_signature(public, b"x", signature[:63])
    assert not verify_signature(public[:31], b"x", signature)
    assert not verify_signature(b"", b"x", signature)


def test_a_small_change_of_the_scalar_does_not_make_a_second_signature() -> None:
    """RFC 8032: S below the group order; a verifier that skips it lets anybody make a second valid signature."""
    order = 2**252 + 27742317777372353535851937790883648493
    kid, signature = RING.sign("head", b"x")
    twin = signature[:32] + (int.from_bytes(signature[32:], "little") + order).to_bytes(32, "little")
    assert not RING.verify("head", kid, b"x", twin)
