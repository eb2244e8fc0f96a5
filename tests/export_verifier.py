"""A verifier of exports, written from docs/reference/export.md and the kinds' table alone: it uses no other code.

`verified` returns what an export holds, or raises `Refused`. `keys` are raw public keys by purpose (`export`, `head`,
`act`, `pack`), and `persons` those of people in hex, by id. It does not know the contracts of bodies and artifacts nor
the assertions of passkeys, and replays nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

KINDS_PAGE = Path(__file__).parents[1] / "docs" / "reference" / "journal-kinds.md"
MANIFEST = "application/vnd.contextos.export-manifest+json"
ORDER = ("entry", "control", "artifact", "definition")
ENTRY = {"run": str, "seq": int, "kind": str, "key": str, "at_us": int, "by": str, "hash": str}
CONTROL = {"kind": str, "key": str, "at_us": int, "by": str, "body": dict, "salt": str}
ENVELOPE = {"payloadType": str, "payload": str, "signatures": list}
OWN_AUTHOR = {"effect.settled": "by", "run.reopened": "by", "approval.reasked": "by", "approval.answered": "approver"}
NOT_IN_FILE = ("active_policies", "egress", "redaction", "runtime")
ROLES = {
    "entry.erased": ["operator"],
    "run.reopened": ["operator"],
    "decision.resolved": ["operator"],
    "decision.closed": ["operator"],
    "approval.reasked": ["operator", None],
    "run.cancelled": ["operator", None],
    "artifact.published": ["publisher"],
    "policies.activated": ["policy_admin"],
    "packs.pinned": ["policy_admin"],
}
ONE_CALL = ("tool_call_id", "capability_id")
LISTED, USED = "person.listed", "directory.used"
SKEW_US = 10_000_000
NEXT = {
    "approval.answered": ("approval.voided", "approval.asked"),
    "effect.settled": ("effect.settled",),
    "slot.answered": ("slot.selected",),
}
"""The kinds of answers, and of what says next whether one counted."""
RECORDED = {"request_digest", "answer"}
LEDGER_ROW = r"^\| `([a-z._]+)` \| (context|effect|decision) \|"
LEDGER_OF = dict(re.findall(LEDGER_ROW, KINDS_PAGE.read_text("utf-8"), re.M))

Keys = Mapping[str, Sequence[bytes]]
Persons = Mapping[str, Collection[str]]


class Refused(ValueError):
    """The export does not verify."""


def need(holds: object, why: str) -> None:
    if not holds:
        raise Refused(why)


def canonical(value: Any) -> bytes:
    """RFC 8785."""
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda one: one[0].encode("utf-16-be"))
        return b"{" + b",".join(canonical(name) + b":" + canonical(one) for name, one in members) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(canonical, value)) + b"]"
    if isinstance(value, float):
        return number(value).encode()
    return json.dumps(value, ensure_ascii=False).encode()


def number(value: float) -> str:
    """Number::toString of ECMA-262."""
    need(math.isfinite(value), "a number is not finite")
    if value == 0:
        return "0"
    sign, digits, exponent = re.fullmatch(r"(-?)([0-9.]+)e([-+][0-9]+)", f"{value:.16e}").groups()  # type: ignore[union-attr]
    for places in range(17):
        sign, digits, exponent = re.fullmatch(r"(-?)([0-9.]+)e([-+][0-9]+)", f"{value:.{places}e}").groups()  # type: ignore[union-attr]
        if float(f"{sign}{digits}e{exponent}") == value:
            break
    digits = digits.replace(".", "").rstrip("0")
    point = int(exponent) + 1
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e{point - 1:+d}"


def parsed(raw: bytes) -> Any:
    """A JSON value whose canonical form is exactly `raw`."""
    try:
        value = json.loads(raw, parse_int=lambda text: int(text) if abs(int(text)) < 2**53 else float(text))
        need(canonical(value) == raw, "not in canonical form")
    except (ValueError, RecursionError) as error:
        raise Refused(str(error)) from None
    return value


def has(value: Any, types: Mapping[str, type]) -> bool:
    named = isinstance(value, dict) and value.keys() == types.keys()
    return named and all(type(value[name]) is kind for name, kind in types.items())


def digest(raw: bytes) -> str:
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def address(value: Any) -> str:
    return digest(canonical(value))


def key_id(key: bytes) -> str:
    return "kid_" + hashlib.sha256(key).hexdigest()[:16]


def body_digest(salt: bytes, body: bytes) -> str:
    return digest(b"%d:%b%d:%b" % (len(salt), salt, len(body), body))


def genesis(tenant: str, run: str) -> str:
    return address({"genesis": 1, "tenant": tenant, "run": run})


def pae(kind: str, payload: bytes) -> bytes:
    return b"DSSEv1 %d %b %d %b" % (len(kind.encode()), kind.encode(), len(payload), payload)


def from_hex(text: Any, size: int) -> bytes:
    need(isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{2 * size}}}", text), "not hex of this length")
    return bytes.fromhex(text)


def from_base64(text: Any) -> bytes:
    need(isinstance(text, str), "not Base64")
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise Refused("not Base64") from None
    need(base64.b64encode(raw).decode() == text, "another spelling of Base64")
    return raw


def signed(keys: Iterable[bytes], kid: Any, message: bytes, signature: bytes) -> bool:
    for key in keys:
        if key_id(key) == kid:
            try:
                Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
            except InvalidSignature:
                return False
            return True
    return False


def enveloped(value: Any, keys: Sequence[bytes], *, kind: str = "", unsigned: bool = False) -> bytes:
    """The payload of a DSSE envelope with one signature, or with none where that is allowed."""
    need(has(value, ENVELOPE) and (not kind or value["payloadType"] == kind), "no envelope")
    payload = from_base64(value["payload"])
    need(len(value["signatures"]) == 1 or (unsigned and not value["signatures"]), "not one signature")
    for one in value["signatures"]:
        need(has(one, {"keyid": str, "sig": str}), "no signature")
        need(signed(keys, one["keyid"], pae(value["payloadType"], payload), from_base64(one["sig"])), "not signed")
    return payload


def verified(raw: bytes, keys: Keys, persons: Persons | None = None) -> dict[str, list[dict[str, Any]]]:
    """The entries of each run."""
    need(raw.endswith(b"\n"), "no end")
    first, *rows = raw[:-1].split(b"\n")
    line = parsed(first)
    need(has(line, {"manifest": dict}), "no manifest")
    manifest = parsed(enveloped(line["manifest"], keys["export"], kind=MANIFEST))
    need(has(manifest, {"v": int, "tenant": str, "lines": list}) and manifest["v"] == 1, "no manifest")
    need(manifest["lines"] == [digest(row) for row in rows], "other lines than were signed")
    lines = []
    for row in rows:
        one = parsed(row)
        need(isinstance(one, dict) and len(one) == 1, "no line")
        lines.append(next(iter(one.items())))
    tenant = manifest["tenant"]
    runs = read_runs(tenant, lines, keys["head"])
    rest = {name: [value for kind, value in lines if kind == name] for name in ORDER[1:]}
    at = len(lines) - sum(map(len, rest.values()))
    need([kind for kind, _ in lines[at:]] == [name for name in ORDER[1:] for _ in rest[name]], "lines out of order")
    need(all(kind in ("entry", "head") for kind, _ in lines[:at]), "lines out of order")
    read_control(tenant, rest["control"], runs, keys["act"], persons or {})
    read_artifacts(rest["artifact"], rest["definition"], runs, keys["pack"])
    return runs


def read_runs(tenant: str, lines: Iterable[tuple[str, Any]], keys: Sequence[bytes]) -> dict[str, list[dict[str, Any]]]:
    runs: dict[str, list[dict[str, Any]]] = {}
    entries: list[dict[str, Any]] = []
    for kind, value in lines:
        if kind == "entry":
            entries.append(linked(tenant, value, entries[-1] if entries else None))
        elif kind == "head":
            need(entries and has(value, {"run": str, "kid": str, "signature": str}), "no head")
            last = entries[-1]
            need(value["run"] == last["run"] and (not runs or last["run"] > max(runs)), "runs out of order")
            statement = f"{tenant}\n{last['run']}\n{last['seq']}\n{last['hash']}".encode()
            need(signed(keys, value["kid"], statement, from_hex(value["signature"], 64)), "head not signed")
            kept(tenant, entries)
            runs[last["run"]], entries = entries, []
        else:
            need(not entries, "a run without its head")
    need(not entries, "a run without its head")
    return runs


def linked(tenant: str, value: Any, last: dict[str, Any] | None) -> dict[str, Any]:
    erased = has(value, {**ENTRY, "body_digest": str})
    need(erased or has(value, {**ENTRY, "body": dict, "salt": str}), "no entry")
    need(value["run"] == (last or value)["run"] and value["seq"] == (last["seq"] + 1 if last else 1), "no such place")
    covered = value.get("body_digest") or body_digest(from_hex(value["salt"], 16), canonical(value["body"]))
    header = {name: value[name] for name in ("run", "seq", "kind", "key", "at_us", "by")}
    before = last["hash"] if last else genesis(tenant, value["run"])
    need(
        value["hash"] == address({**header, "v": 1, "tenant": tenant, "body_digest": covered, "prev_hash": before}),
        "hash",
    )
    recorded = not erased and {"answer"} <= value["body"].keys() <= RECORDED
    said = None if erased else value["body"]["answer"] if recorded else value["body"]
    return {**value, "said": said, "covered": covered, "before": before}


def kept(tenant: str, entries: Sequence[dict[str, Any]]) -> None:
    """What the entries of a run keep."""
    sent: dict[str, Any] = {}
    at_us, head = 0, genesis(tenant, entries[0]["run"])
    ledgers: dict[str, list[str]] = {"context": [], "effect": [], "decision": []}
    recorded = False
    try:
        for one in entries:
            said = one["said"]
            if one["kind"] == "record.revised":
                recorded = True
                need(not said or indexed(said, ledgers), "a record that does not index its ledgers")
            need(recorded or one["kind"] != "run.ended", "an end without a record")
            if one["kind"] in LEDGER_OF:
                ledgers[LEDGER_OF[one["kind"]]].append(one["hash"])
            need(one["at_us"] >= at_us, "time goes back")
            need(author(one), "another author")
            if one["kind"] == "tool.dispatching":
                sent[one["key"]] = said
            if one["kind"] == "tool.dispatching" and said:
                need(said["envelope"]["run_id"] == one["run"], "a call of another run")
            if one["kind"] == "tool.returned" and said:
                need(one["key"] in sent, "an answer without a call")
                call = sent[one["key"]]
                need(
                    not call or all(said["envelope"].get(n) == call["envelope"].get(n) for n in ONE_CALL),
                    "another call",
                )
            if one["kind"] == "approval.asked" and said:
                binding = said["binding"]
                need(binding.get("nonce") == head, "a question that is bound to nothing")
                need(said["binding_digest"] == address(binding), "another digest of a binding")
                need(binding["args_digest"] == address(said["args"]), "another digest of arguments")
                need(binding["evidence_snapshot_hash"] == address(said["evidence"]), "another digest of evidence")
            at_us = one["at_us"]
            head = head if one["kind"] == "run.resumed" else one["hash"]
    except (LookupError, TypeError, AttributeError) as error:
        raise Refused(f"a body of another form: {error!r}") from None


def indexed(record: dict[str, Any], ledgers: dict[str, list[str]]) -> bool:
    """Whether a record names the three ledgers as the entries before it make them."""
    there = {name: {"entries": len(hashes), "head": address(hashes)} for name, hashes in ledgers.items()}
    stated = record["lineage"]["ledgers"] or {}
    admitted = bool(record.get("agent_identity"))
    return all(stated.get(name) == one for name, one in there.items()) and bool(ledgers["decision"] or not admitted)


def author(one: dict[str, Any]) -> bool:
    kind, by, said = one["kind"], one["by"], one["said"]
    if kind in ("call.asked", "session.finished"):
        return bool(by == "agent")
    if kind == "run.resumed":
        return by != ""
    if kind in OWN_AUTHOR:
        return said is None or by == said[OWN_AUTHOR[kind]]
    if kind == "slot.answered":
        return said is None or by == said["act"]["actor"]
    if kind == "run.cancel_requested" and not one["key"].startswith("before/"):
        return said is None or by == said["by"]
    return bool(by == "runtime")


def read_control(
    tenant: str, lines: Sequence[Any], runs: Mapping[str, Any], keys: Sequence[bytes], persons: Persons
) -> None:
    for value in lines:
        need(has(value, CONTROL), "no line of control")
        unsealed(tenant, value, keys)
    places = [(value["at_us"], canonical({"control": value})) for value in lines]
    need(all(one < other for one, other in pairwise(places)), "lines of control out of order")
    people = [(value["key"], value["at_us"], listed(value, persons)) for value in lines if value["kind"] == LISTED]
    versions = [
        (USED, value["at_us"], value) for value in lines if (value["kind"], value["key"]) == (USED, "directory")
    ]
    acts = [value for value in lines if value["kind"] not in (LISTED, USED)]
    used = set()
    for entries in runs.values():
        try:
            rests_on = list(needed(entries))
        except (LookupError, TypeError, AttributeError) as error:
            raise Refused(f"a body of another form: {error!r}") from None
        for kind, key, holds in rests_on:
            said = [(at, one["body"]["act"]) for at, one in enumerate(acts) if (one["kind"], one["key"]) == (kind, key)]
            match = [at for at, act in said if holds(act, act["arguments"])]
            need(match, f"no act `{kind}` of `{key}`")
            used.add(match[0])
        try:
            used |= set(of_decision(entries, acts))
        except (LookupError, TypeError, AttributeError) as error:
            raise Refused(f"a body of another form: {error!r}") from None
    need(used == set(range(len(acts))), "an act on which nothing rests")
    for value in acts:
        prove_act(tenant, value, in_force(people, value["by"], value["at_us"], value["at_us"]), persons)
    signers = [(name, run[0]["at_us"], run[-1]["at_us"]) for run in runs.values() for name in signed_in(run)]
    signers += [(value["by"], value["at_us"], value["at_us"]) for value in acts]
    listings = [*people, *versions]
    counting = [one for signer in signers for one in in_force(listings, *signer)]
    need(all(any(one is other for other in counting) for _, _, one in listings), "a listing on which nothing rests")
    need(len(listings) + len(acts) == len(lines), "a line of control of no kind")
    for entries in runs.values():
        try:
            prove_answers(tenant, entries, people, persons)
        except (LookupError, TypeError, AttributeError) as error:
            raise Refused(f"a body of another form: {error!r}") from None


def unsealed(tenant: str, value: Any, keys: Sequence[bytes]) -> None:
    seal = value["body"].get("seal")
    need(has(seal, {"kid": str, "signature": str}), "no seal")
    place = {name: value[name] for name in ("kind", "key", "at_us", "by", "salt")}
    from_hex(value["salt"], 16)
    bare = {name: one for name, one in value["body"].items() if name != "seal"}
    message = canonical({**place, "tenant": tenant, "body": bare})
    need(signed(keys, seal["kid"], message, from_hex(seal["signature"], 64)), "not sealed")
    if value["kind"] == USED:
        need(bare.keys() == {"version", "digest"} and value["by"] == "runtime", "no version of a directory")
    elif value["kind"] == LISTED:
        need(bare.keys() == {"person"} and value["by"] == "runtime", "no listing")
    else:
        need(bare.keys() == {"act", "role", "assertion", "key"}, "no act")
        need(
            has(bare["act"], {"tenant_id": str, "kind": str, "actor": str, "arguments": dict, "expected": int}),
            "no act",
        )


def listed(value: Any, persons: Persons) -> Any:
    """A person with those of their keys that somebody else gave, or with all of them if nobody gave any."""
    person = value["body"]["person"] or {"approver_id": value["key"]}
    need(isinstance(person, dict) and person.get("approver_id") == value["key"], "another person")
    given = persons.get(value["key"])
    keys = [key for key in person.get("keys", ()) if given is None or key["public_key"] in given]
    return {**person, "keys": keys}


def in_force(people: Iterable[tuple[str, int, Any]], name: str, since_us: int, until_us: int) -> list[Any]:
    """How a person was listed between two times."""
    lines = [(at_us, person) for one, at_us, person in people if one == name]
    ends = [at_us for at_us, _ in lines[1:]] + [2**63] * bool(lines)
    return [
        person
        for (at_us, person), end in zip(lines, ends, strict=True)
        if at_us <= until_us + SKEW_US and end > since_us - SKEW_US
    ]


def prove_act(tenant: str, value: Any, people: Sequence[Any], persons: Persons) -> None:
    act, role, assertion = value["body"]["act"], value["body"]["role"], value["body"]["assertion"]
    need((act["tenant_id"], act["kind"], act["actor"]) == (tenant, value["kind"], value["by"]), "another act")
    need(role in ROLES.get(act["kind"], []), "an act without its role")
    if assertion == {"kind": "unsafe_local"}:
        need(act["actor"] not in persons, "an act that nobody signed")
    else:
        need(has(assertion, {"kind": str, "token": str}) and assertion["kind"] == "jws", "no assertion")
        holders = [one for one in people if role is None or role in one.get("roles", ())]
        need(value["body"]["key"] in keys_of(people), "a key that the directory does not list")
        need(vouched(assertion["token"], keys_of(holders), "contextos-act+jws", act), "act not signed")
        need(vouched(assertion["token"], [value["body"]["key"]], "contextos-act+jws", act), "signed with another key")


def keys_of(people: Iterable[Any]) -> list[Any]:
    return [key for one in people for key in one.get("keys", ())]


def vouched(token: str, keys: Iterable[Any], typ: str, statement: Any) -> bool:
    """Whether one of these keys (`kid`, `public_key`) made this compact JWS over the statement."""
    for key in keys:
        try:
            if jws(token, key["kid"], from_hex(key["public_key"], 32), typ) == statement:
                return True
        except Refused:
            continue
    return False


def signed_in(entries: Iterable[dict[str, Any]]) -> set[str]:
    """The people who answer in a run, or whom it looked up."""
    names = set()
    for one in entries:
        said = one["said"] or {}
        if one["kind"] in ("approval.answered", "effect.settled"):
            names.add(said.get("approver") or said.get("by"))
        elif one["kind"] == "slot.answered":
            names.add(one["by"])
        elif one["kind"] == "identity.resolved":
            names.add((said.get("approver") or said.get("operator") or {}).get("approver_id"))
            names.add(USED if (said.get("principals") or {}).get("directory_version") is not None else None)
    return names - {None}


def prove_answers(tenant: str, entries: Sequence[dict[str, Any]], people: Any, persons: Persons) -> None:
    """The answers of people, unless the run says that one did not count."""
    asked: dict[str, Any] = {}
    sent: dict[str, Any] = {}
    for at, one in enumerate(entries):
        said = one["said"]
        if one["kind"] == "tool.dispatching" and said:
            sent[one["key"].rpartition("/")[0]] = said["envelope"]
        if one["kind"] == "approval.asked" and said:
            asked[one["key"]] = said
        if one["kind"] not in NEXT or not said:
            continue
        name, statement = one["by"], None
        after = next(
            (other for other in entries[at + 1 :] if other["key"] == one["key"] and other["kind"] in NEXT[one["kind"]]),
            None,
        )
        if one["kind"] == "approval.answered" and one["key"] in asked:
            question = asked[one["key"]]
            need(
                said["binding_digest"] == question["binding_digest"] == address(question["binding"]), "another question"
            )
            typ, statement = "contextos-approval+jws", approval(question, said)
            if (token := (said["assertion"].get("token") or "").split(".."))[1:]:
                payload = base64.urlsafe_b64encode(canonical(statement)).decode().rstrip("=")
                said["assertion"]["token"] = f".{payload}.".join(token)
        elif one["kind"] == "effect.settled" and one["key"] in sent:
            typ, statement = "contextos-settlement+jws", settlement(tenant, sent[one["key"]], said)
        elif one["kind"] == "slot.answered":
            chosen = {"run_id": one["run"], "selection": said["selection"]}
            typ = "contextos-act+jws"
            statement = {
                "tenant_id": tenant,
                "kind": "slot.answered",
                "actor": name,
                "arguments": chosen,
                "expected": one["seq"] - 1,
            }
            need(said["act"] == statement, "another selection")
        if statement is None or (after and (after["kind"] == "approval.voided" or "refused" in (after["said"] or {}))):
            continue
        assertion = said.get("assertion") or {"kind": "unsafe_local"}
        need(assertion["kind"] in ("jws", "webauthn", "oidc", "unsafe_local"), "an unknown assertion")
        need(assertion["kind"] != "unsafe_local" or name not in persons, "an answer that nobody signed")
        if assertion["kind"] == "jws":
            listing = keys_of(in_force(people, name, entries[at - 1]["at_us"], one["at_us"]))
            need(vouched(assertion["token"], listing, typ, statement), "an answer that nobody signed")


def settlement(tenant: str, sent: Any, said: Any) -> dict[str, Any]:
    return {
        "tenant_id": tenant,
        "mode": sent["approval_mode_effective"],
        "requester_chain": sent["principal_chain"],
        "idempotency_key": sent.get("idempotency_key"),
        **{name: sent[name] for name in ("run_id", "tool_call_id", "capability_id", "args")},
        "output": said.get("output"),
        "mutations": said.get("mutations", []),
        **{name: said[name] for name in ("happened", "evidence_ref", "by")},
    }


def approval(question: Any, said: Any) -> dict[str, Any]:
    same = {name: question[name] for name in ("approval_id", "binding", "binding_digest", "args", "evidence")}
    return same | {name: said[name] for name in ("approver", "verdict", "reason")}


def jws(token: str, kid: Any, key: bytes, typ: str) -> Any:
    need(re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){2}", token), "no JWS")
    parts = [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.split(".")]
    need(".".join(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts) == token, "another spelling")
    header = parsed(parts[0])
    when = {"iat": header["iat"]} if isinstance(header, dict) and type(header.get("iat")) is int else {}
    need(header == {"alg": "Ed25519", "kid": kid, "typ": typ, **when}, "another header")
    need(signed([key], kid, token.rpartition(".")[0].encode(), parts[2]), "not signed")
    return parsed(parts[1])


def needed(entries: Sequence[dict[str, Any]]) -> Iterable[tuple[str, str, Any]]:
    """The acts on which the entries of a run rest: kind, key, and what holds of it."""
    for at, one in enumerate(entries):
        run, said = one["run"], one["said"]
        if "body_digest" in one:
            erased = {"run": run, "seq": one["seq"], "body_digest": one["body_digest"]}
            yield "entry.erased", f"{run}/{one['seq']}", lambda _, a, e=erased: e.items() <= a.items()
        if one["kind"] == "run.reopened":
            why = {"run": run} | ({name: said[name] for name in ("reason", "limit", "to")} if said else {})
            made = (one["by"], one["seq"] - 1)
            yield (
                "run.reopened",
                run,
                lambda act, a, w=why, m=made: w.items() <= a.items() and (act["actor"], act["expected"]) == m,
            )
        if one["kind"] == "approval.reasked":
            why = {"run": run} | ({"reason": said["reason"]} if said else {})
            made = (one["by"], one["seq"] - 1)
            yield (
                "approval.reasked",
                run,
                lambda act, a, w=why, m=made: w.items() <= a.items() and (act["actor"], act["expected"]) == m,
            )
        if one["kind"] == "run.cancel_requested":
            after = next(
                (other for other in entries[at + 1 :] if other["kind"] != "run.resumed"), {"kind": "", "key": ""}
            )
            if (after["kind"], after["key"]) != ("run.cancel_unproved", one["key"]):
                yield (
                    "run.cancelled",
                    run,
                    lambda act, a, s=said, r=run: (
                        a["run"] == r and (s is None or s == {"by": act["actor"], "reason": a["reason"]})
                    ),
                )
        if one["kind"] == "run.pinned" and said and said.get("pins"):
            yield from put_in_force(entries[0]["said"], said)


def of_decision(entries: Sequence[dict[str, Any]], acts: Sequence[Any]) -> Iterable[int]:
    """The acts about the decision of a run that has ended: the first that resolves it, and the first that closes it."""
    records = [one["said"] for one in entries if one["kind"] == "record.revised" and one["said"]]
    if entries[-1]["kind"] != "run.ended" or not records:
        return
    about = {"run": entries[0]["run"], "record_hash": records[-1]["record_hash"]}
    for kind in ("decision.resolved", "decision.closed"):
        said = [at for at, one in enumerate(acts) if (one["kind"], one["key"]) == (kind, about["run"])]
        said = [at for at in said if about.items() <= acts[at]["body"]["act"]["arguments"].items()]
        if kind == "decision.closed" or records[-1]["status"] == "ESCALATED":
            yield from said[:1]


def put_in_force(received: Any, said: Any) -> Iterable[tuple[str, str, Any]]:
    for ref, pin in artifacts_in(said["pins"]).items():
        yield "artifact.published", ref, lambda _, a, r=ref, p=pin: (a["ref"], a["digest"]) == (r, p)
    policies = said["pins"].get("active_policies")
    if policies != address([]):
        yield "policies.activated", "artifacts", lambda _, a: address(a["policies"]) == policies
    if received:
        request = received["request"]
        deployment = received["deployment"]
        environment = deployment.get("environment", deployment["profile"])
        wanted = (environment, set(request["context_pack_refs"]))
        yield (
            "packs.pinned",
            "artifacts",
            lambda _, a: (a["environment"], set(a["refs"])) == wanted and request["input"]["intent"] in a["intents"],
        )


def artifacts_in(pins: Mapping[str, str]) -> dict[str, str]:
    return {
        name: pin
        for name, pin in pins.items()
        if not name.startswith(("adapter:", "code:", "packages:")) and name not in NOT_IN_FILE
    }


def read_artifacts(
    artifacts: Sequence[Any], definitions: Sequence[Any], runs: Mapping[str, Any], keys: Sequence[bytes]
) -> None:
    pinned: dict[str, bool] = {}
    defined: set[str] = set()
    for entries in runs.values():
        received = entries[0]["said"]
        unsigned = bool(received) and "unsafe_unsigned_packs" in received["deployment"]["unsafe"]
        for one in entries:
            if one["kind"] == "run.pinned" and one["said"]:
                pins = one["said"].get("pins", {})
                for pin in artifacts_in(pins).values():
                    pinned[pin] = pinned.get(pin, True) and unsigned
                defined |= {pin for name, pin in pins.items() if name.startswith("adapter:")}
    found = []
    for value in artifacts:
        payload = enveloped(value, keys, unsigned=True)
        try:
            found.append(address(json.loads(payload)))
        except ValueError:
            raise Refused("no artifact") from None
        need(value["signatures"] or pinned.get(found[-1]), "an artifact that nobody signed")
    need(found == sorted(pinned), "other artifacts than are pinned, or out of order")
    need([address(one) for one in definitions] == sorted(defined), "other definitions than are pinned, or out of order")
