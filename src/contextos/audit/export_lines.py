"""The lines of an export file, in both directions: an entry, the head of a run, a line of `control`, an artifact.

A line is the canonical JSON of one object with one member, whose name is its kind. A line repeats nothing that follows
from other lines, except the place and the hash of an entry: with these a reader can name an entry that differs.
Source: docs/reference/export.md.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical, content_address, read_canonical
from contextos.contracts.journal import ENTRY_FORMAT, Draft, Entry, SignedHead, genesis, header_hash, link
from contextos.contracts.ports.outside import Keys
from contextos.control.artifacts import StoredArtifact, read_artifact
from contextos.errors import MalformedJson, SignatureInvalid
from contextos.trust.seal import decode_base64, pae

LINE_KINDS: Final = ("entry", "head", "control", "artifact", "definition")

_ENTRY: Final = {"run": str, "seq": int, "kind": str, "key": str, "at_us": int, "by": str, "hash": str}
_WHOLE: Final = _ENTRY | {"body": dict, "salt": str}
_ERASED: Final = _ENTRY | {"body_digest": str}
_HEAD: Final = {"run": str, "kid": str, "signature": str}
_CONTROL: Final = {"kind": str, "key": str, "at_us": int, "by": str, "body": dict, "salt": str}
_ENVELOPE: Final = {"payloadType": str, "payload": str, "signatures": list}
_SIGNATURE: Final = {"keyid": str, "sig": str}
_SALT: Final = re.compile(r"[0-9a-f]{32}")


class NotALine(ValueError):
    """A line or its content does not have the form of an export; the text says why."""


def entry_line(entry: Entry) -> bytes:
    """Return the line of a journal entry whose body is canonical."""
    header = {name: getattr(entry, name) for name in _ENTRY}
    if entry.body is None or entry.salt is None:
        return canonical({"entry": header | {"body_digest": entry.body_digest}})
    return canonical({"entry": header | {"body": read_canonical(entry.body), "salt": entry.salt.hex()}})


def read_entry(fields: Any, *, last: Entry | None, tenant_id: str) -> Entry:
    """Return the entry of a line, linked to the entry before it, `last` (None: the entry is the first of a run).

    Raises:
        NotALine: the line has another form, or its hash is not the hash of this entry in this place.
    """
    if not (_matches(fields, _WHOLE) or _matches(fields, _ERASED)):
        raise NotALine("is not a journal entry as an export has it")
    seq, prev_hash = (last.seq + 1, last.hash) if last else (1, genesis(tenant_id, fields["run"]))
    if (fields["run"], fields["seq"]) != (last.run if last else fields["run"], seq):
        raise NotALine(f"is missing; entry {fields['seq']} of `{fields['run'][:64]}` is in its place")
    draft = Draft(fields["kind"], fields["key"], fields["at_us"], fields["by"], b"", b"")
    if "body" in fields:
        full_draft = draft._replace(body=canonical(fields["body"]), salt=_read_salt(fields["salt"]))
        entry = link(tenant_id, fields["run"], seq, prev_hash, full_draft)
    else:
        header = (tenant_id, fields["run"], seq, *draft[:4], fields["body_digest"], prev_hash)
        entry = Entry(*header, hash="", body=None, salt=None, v=ENTRY_FORMAT)
        entry = entry._replace(hash=header_hash(entry))
    if entry.hash != fields["hash"]:
        raise NotALine("has not the hash of this entry behind the one before it")
    return entry


def head_line(run_id: str, head: SignedHead) -> bytes:
    """Return the line with the signature of the head of a run. The entries give its length and last hash."""
    _, _, kid, signature = head
    return canonical({"head": {"run": run_id, "kid": kid, "signature": signature}})


def read_head_line(fields: Any, *, last: Entry) -> SignedHead:
    """Return the signed head of the run that ends with `last`. Raises `NotALine`."""
    if not _matches(fields, _HEAD) or fields["run"] != last.run:
        raise NotALine("is not a signed head of the run before it")
    return last.seq, last.hash, fields["kid"], fields["signature"]


def sealed_line(line: Entry) -> bytes:
    """Return the line of a sealed entry of `control`: what its seal covers. It states no place in `control`, because
    without the rest of that stream no reader could check it.
    """
    assert line.body is not None, "a line of `control` is never erased"
    assert line.salt is not None, "a line of `control` is never erased"
    fields = {"kind": line.kind, "key": line.key, "at_us": line.at_us, "by": line.by, "salt": line.salt.hex()}
    return canonical({"control": fields | {"body": read_canonical(line.body)}})


def read_control(fields: Any) -> Draft:
    """Return the fields of the entry of `control` in a line. Its seal is not verified. Raises `NotALine`."""
    if not _matches(fields, _CONTROL):
        raise NotALine("is not a line of `control`")
    body = canonical(fields["body"])
    return Draft(fields["kind"], fields["key"], fields["at_us"], fields["by"], body, _read_salt(fields["salt"]))


def artifact_line(envelope: Mapping[str, Any], keys: Keys) -> bytes:
    """Return the line of a published artifact, with the first of its signatures that verifies and no other.

    Raises:
        SignatureInvalid: the envelope has signatures, and no key that is trusted for packs made one.
    """
    payload = decode_base64(envelope["payload"])
    message = pae(envelope["payloadType"], payload)
    verified = [
        {"keyid": kid, "sig": _encode_base64(signature)}
        for signature in (decode_base64(signature.get("sig")) for signature in envelope["signatures"])
        for kid in keys.kids("pack")
        if keys.verify("pack", kid, message, signature)
    ]
    if envelope["signatures"] and not verified:
        raise SignatureInvalid("no key that is trusted for `pack` signed a pinned artifact; check who sealed it")
    artifact = {"payloadType": envelope["payloadType"], "payload": _encode_base64(payload), "signatures": verified[:1]}
    return canonical({"artifact": artifact})


def read_artifact_line(fields: Any, keys: Keys) -> StoredArtifact:
    """Return the artifact in a line, which has one signature that verifies, or none.

    Raises:
        NotALine: the line has another form, or its signature does not verify.
        InvalidInput: the line does not hold an artifact.
    """
    if not _matches(fields, _ENVELOPE) or not all(_matches(item, _SIGNATURE) for item in fields["signatures"]):
        raise NotALine("is not an artifact")
    payload = _decode_exact(fields["payload"])
    stored = read_artifact(fields["payloadType"], payload)
    if content_address(loads(payload)) != stored.digest:
        raise NotALine("is an artifact whose content has another digest")
    message = pae(fields["payloadType"], payload)
    if len(fields["signatures"]) > 1 or not all(
        keys.verify("pack", item["keyid"], message, _decode_exact(item["sig"])) for item in fields["signatures"]
    ):
        raise NotALine(f"is the artifact `{stored.ref}`, which no key signed that is trusted for `pack`")
    return stored


def definition_line(definition: Any) -> bytes:
    """Return the line of the definition of an adapter."""
    return canonical({"definition": definition})


def read_export_line(row: bytes) -> tuple[str, Any]:
    """Return the kind of a line and its content.

    Raises:
        NotALine: the line is not the canonical JSON of an object with one member that names a kind of line.
    """
    try:
        line = read_canonical(row)
    except MalformedJson as error:
        raise NotALine(f"is not a line of an export: {error}") from None
    if not isinstance(line, dict) or len(line) != 1 or next(iter(line)) not in LINE_KINDS:
        raise NotALine("is not a line of an export")
    [(kind, fields)] = line.items()
    return kind, fields


def _matches(value: Any, types: Mapping[str, type]) -> bool:
    """Return whether a JSON value is an object with exactly these members, each of its type."""
    if not isinstance(value, dict) or value.keys() != types.keys():
        return False
    return all(type(value[name]) is kind for name, kind in types.items())


def _read_salt(text: str) -> bytes:
    if not _SALT.fullmatch(text):
        raise NotALine("has no salt of 16 bytes")
    return bytes.fromhex(text)


def _encode_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decode_exact(text: str) -> bytes:
    """Return the bytes of a text in Base64, which must be spelled as `_base64` spells it."""
    raw = decode_base64(text)
    if _encode_base64(raw) != text:
        raise NotALine("has Base64 that is not as it was written")
    return raw
