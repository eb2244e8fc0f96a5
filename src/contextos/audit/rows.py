"""Verify the rows that runs and operators wrote beside the journal: each is what a signed entry says, and none is
gone.

The rows of a run are compared with its verified entries. The rows of a tenant are compared with its acts, or with the
run that they name. docs/design/rows.md says for each column what proves it.
Source: docs/design/journal.md, "Rows that the journal proves".
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from contextos.contracts.documents.catalog import ARTIFACTS, PINS, PublishedPin
from contextos.contracts.documents.collection import Collection, FoundDocuments, StoredDocument, find_documents
from contextos.contracts.documents.epochs import EPOCH_KEY, EPOCHS, Epoch
from contextos.contracts.documents.operations import (
    APPROVALS,
    COUNTED_EFFECTS,
    DENIALS,
    HISTORY_BUCKETS,
    OPERATIONS,
    UNVOUCHED_WRITES,
    ApprovalDocument,
    BucketEnd,
    CountedEffect,
    counted_key,
    counted_numbers,
    kept_digest,
    operation_key,
    unvouched_key,
)
from contextos.contracts.documents.runs import HOP_CLAIMS, LEASES, REQUESTS, HopUse, RequestClaim, hop_key, request_key
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import CONTROL, Entry
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import ADAPTER
from contextos.control.artifacts import read_artifact
from contextos.errors import ChainBroken, InvalidInput
from contextos.trust.approvals.acts import read_act
from contextos.trust.approvals.cancel_requests import proved_cancels
from contextos.trust.journal.signed_heads import verify_answers
from contextos.trust.pages import stream_pages
from contextos.trust.rows.counted_effects import SignedCounter
from contextos.trust.rows.denials import ShownDenial, proving_denial, shown_denials, unproved_denials
from contextos.trust.rows.memories import MAX_READS
from contextos.trust.rows.operations import operation_fault, shown_fault
from contextos.trust.rows.unvouched_writes import SignedWrites

_OUTCOMES: Final = {"approval.expired": "expired", "approval.reasked": "cancelled", "run.cancel_requested": "cancelled"}
_READ_KINDS: Final = frozenset(
    {
        "approval.asked",
        "approval.answered",
        *_OUTCOMES,
        "tool.dispatching",
        "history.read",
        "act.looked_up",
        "arguments.traced",
    }
)


async def verify_run_rows(store: Store, tenant_id: str, run_id: str, entries: Sequence[Entry], keys: Keys) -> None:
    """Check the rows that a run wrote against its verified `entries`: the claim of its request, its questions, denials,
    operations and counted effects. Also check that each answer fits and was waited for, and each cancel is proved.

    Raises:
        ChainBroken: a row is missing or altered, or an appended entry is not a valid answer; names it.
    """
    verify_answers(run_id, entries)
    cancel_requests = [entry for entry in entries if entry.kind == "run.cancel_requested"]
    proved_requests = await proved_cancels(store, keys, run_id) if cancel_requests else ()
    for entry in cancel_requests:
        if entry.body is not None and read_body(entry) not in proved_requests:
            raise ChainBroken(run_id, entry.seq, "is a cancel request that no sealed act proves")
    for entry in entries:
        if entry.kind == "run.pinned" and (reason := await _pins_fault(store, read_body(entry) or {})):
            raise ChainBroken(run_id, entry.seq, reason)
    fault_elsewhere = partial(operation_fault, store, tenant_id, keys)
    for _ in range(MAX_READS):
        rows = _ExpectedRows(run_id, entries)
        documents = await find_documents(store, *rows.places())
        fault = rows.fault(documents) or await rows.operations_fault(documents, fault_elsewhere)
        for denial in shown_denials(entries) if fault is None else ():
            operation = None if denial.erased or denial.void else denial.of
            # The first denial of several runs is kept.
            if operation and await unproved_denials(store, tenant_id, keys, operation) is not None:
                fault = denial.seq, f"is a denial, and no document `{DENIALS.name}/{operation}` says so"
        if fault is None:
            return
        # A run can go on while it is verified, and its rows with it.
        reread = await store.read(run_id)
        if len(reread) == len(entries) and documents.same_as(await find_documents(store, *rows.places())):
            raise ChainBroken(run_id, *fault)
        entries = reread


async def _pins_fault(store: Store, pinned: Mapping[str, Any]) -> str | None:
    """Return why the act that wrote a pinned snapshot, or a pinned adapter definition, is not in the store; or None."""
    snapshot, seq = pinned.get("snapshot", "kg_0"), pinned.get("snapshot_line", 0)
    acts = await store.lines(CONTROL, snapshot)
    if (snapshot, seq) != ("kg_0", 0) and (seq, "graph.written") not in [(act.seq, act.kind) for act in acts]:
        return f"pins `{snapshot}`, which the entry of `control` that it names did not write"
    pins = [(name, pin) for name, pin in pinned.get("pins", {}).items() if name.startswith(ADAPTER)]
    artifacts = await find_documents(store, *(ARTIFACTS.place(pin) for _, pin in pins))
    missing = [name for name, pin in pins if not artifacts.has(ARTIFACTS, pin)]
    return f"pins `{missing[0]}`, whose artifact is gone" if missing else None


class _ExpectedRows:
    """The rows that the entries of one run state. An erased entry states no row."""

    def __init__(self, run_id: str, entries: Sequence[Entry]) -> None:
        self._run_id, self._entries = run_id, entries
        self._bodies = [(entry, body) for entry in entries if entry.kind in _READ_KINDS and (body := read_body(entry))]
        self._expected: dict[tuple[str, str], tuple[int, Any, Collection[Any]]] = {}
        self._dispatched: dict[str, int] = {}
        self._claimed_versions: dict[str, int] = {}
        self._unvouched_writes: dict[str, tuple[int, str]] = {}
        received = read_body(entries[0])
        if received is not None:
            claim = RequestClaim(run_id, received["fingerprint"])
            key = request_key(received["request"]["request_id"], received.get("correction", 1))
            self._expect(REQUESTS, key, 1, claim)
            if hop := received["request"].get("hop"):
                use = HopUse(received["request"]["request_id"], hop["claim_hash"])
                self._expect(HOP_CLAIMS, hop_key(hop["issuer"], hop["jti"]), 1, use)
        self._expect_questions()
        self._expect_operations()

    def places(self) -> Iterator[tuple[str, str]]:
        yield from self._expected
        yield from map(OPERATIONS.place, self._dispatched)
        yield from map(UNVOUCHED_WRITES.place, self._unvouched_writes)

    def fault(self, documents: FoundDocuments) -> tuple[int, str] | None:
        """Return the number of the first entry whose row is missing or differs, and the fault; or None."""
        for (_, key), (seq, body, collection) in self._expected.items():
            stored = documents.one(collection, key)
            if stored is None or (stored.body, stored.version) != (body, _written_version(body)):
                return seq, _contradiction(collection, key, stored)
        for key, (seq, digest) in self._unvouched_writes.items():
            write = documents.one(UNVOUCHED_WRITES, key)
            # None: the digests were erased. Then more values are untrusted, and only the runtime could sign that.
            if write is None or (write.body.digests is not None and kept_digest(write.body.digests) != digest):
                return seq, _contradiction(UNVOUCHED_WRITES, key, write)
        return None

    async def operations_fault(self, documents: FoundDocuments, fault_elsewhere: Any) -> tuple[int, str] | None:
        """As `fault`, for the rows of the idempotency table. Another run can have taken the operation up since."""
        for key, seq in self._dispatched.items():
            row = documents.one(OPERATIONS, key)
            if row is None:
                return seq, _contradiction(OPERATIONS, key, row)
            is_own = row.body.run_id == self._run_id
            fault = shown_fault(self._entries, key, row) if is_own else await fault_elsewhere(key, row)
            if not is_own and row.version <= self._claimed_versions.get(key, 0):
                fault = "it is as it was before this run took the operation up"
            if fault:
                return seq, f"{_contradiction(OPERATIONS, key, row)}: {fault}"
        return None

    def _is_erased(self, call_key: str) -> bool:
        """Return whether an entry of this call was erased."""
        return any(entry.body is None and f"{entry.key}/".startswith(f"{call_key}/") for entry in self._entries)

    def _expect(self, collection: Collection[Any], key: str, seq: int, body: Any) -> None:
        self._expected[collection.place(key)] = seq, body, collection

    def _expect_questions(self) -> None:
        questions: dict[str, dict[str, Any]] = {}
        for entry, body in self._bodies:
            if entry.kind == "approval.asked":
                questions[entry.key] = body
                names = ("approval_id", "gate_id", "required_role", "deadline_us", "binding_digest")
                document = ApprovalDocument(**{name: body[name] for name in names}, run_id=self._run_id, state="open")
                self._expect(APPROVALS, body["approval_id"], entry.seq, document)
            elif entry.kind == "tool.dispatching" and body.get("approval_id"):
                self._set_state(body["approval_id"], "consumed")
            elif entry.key in questions and (entry.kind in _OUTCOMES or entry.kind == "approval.answered"):
                question = questions[entry.key]
                verdict, approver = body.get("verdict"), body.get("approver")
                # A run that was answered can still find a cancel request, which ends the run and not the question.
                self._set_state(question["approval_id"], verdict or _OUTCOMES[entry.kind], approver, only_open=True)
        for key, question in questions.items():
            if self._is_erased(key):
                # An entry about the question was erased, so its state is no longer known.
                self._expected.pop(APPROVALS.place(question["approval_id"]), None)

    def _set_state(self, approval_id: str, state: Any, approver: str | None = None, *, only_open: bool = False) -> None:
        place = APPROVALS.place(approval_id)
        if place in self._expected:
            seq, before, collection = self._expected[place]
            if only_open and before.state != "open":
                return
            after = replace(before, state=state, approver=approver or before.approver)
            self._expected[place] = seq, after, collection

    def _expect_operations(self) -> None:
        history_reads: dict[str, dict[str, Any]] = {}
        free_versions: dict[str, int] = {}
        kept_digests: dict[str, str] = {}
        for entry, body in self._bodies:
            if entry.kind == "act.looked_up" and not entry.key.startswith("again/"):
                free_versions[entry.key.partition("/")[2]] = body["version"]
            elif entry.kind == "arguments.traced" and "kept" in body:
                kept_digests[entry.key] = body["kept"]
            elif entry.kind == "history.read" and entry.key.startswith("dispatch/"):
                history_reads[entry.key.removeprefix("dispatch/")] = body
            elif entry.kind == "tool.dispatching" and (key := body["envelope"].get("idempotency_key")) is None:
                self._expect_counted_effects(entry, body, history_reads, body["envelope"]["tool_call_id"])
            elif entry.kind == "tool.dispatching":
                operation = operation_key(body["envelope"]["capability_id"], key)
                call_key = entry.key.rpartition("/")[0]
                if digest := kept_digests.get(call_key):
                    adapter_id = body["envelope"]["capability_id"].partition(".")[0]
                    self._unvouched_writes[unvouched_key(adapter_id, self._run_id, call_key)] = entry.seq, digest
                if not self._is_erased(entry.key.rpartition("/")[0]):
                    self._dispatched.setdefault(operation, entry.seq)
                    self._claimed_versions[operation] = free_versions.get(entry.key.rpartition("/")[0], -1) + 1
                self._expect_counted_effects(entry, body, history_reads, key)

    def _expect_counted_effects(
        self, entry: Entry, body: Mapping[str, Any], history_reads: dict[str, dict[str, Any]], key: str
    ) -> None:
        """Expect one counted effect of a dispatch in each bucket that its call's last `history.read` names. `key` is
        the idempotency key; a counted read has no such key, and its call id is used.
        """
        history = history_reads.pop(entry.key.rpartition("/")[0], None)
        operation = operation_key(body["envelope"]["capability_id"], key)
        for bucket, end in (history["buckets"] if history else {}).items():
            before = BucketEnd(**end)
            at_us = max(history["at_us"] if history else 0, before.at_us)
            numbers = counted_numbers(body["envelope"]["args"])
            effect = CountedEffect(operation, at_us, numbers, before.number + 1, before)
            self._expect(COUNTED_EFFECTS, counted_key(bucket, effect), entry.seq, effect)


async def verify_tenant_rows(store: Store, tenant_id: str, upto: int, keys: Keys) -> None:
    """Check the rows of a tenant that belong to no single run: counted effects, what runs wrote, denials, published
    artifacts and the epoch. `upto` is the number of entries that `control` had before the call.

    Raises:
        ChainBroken: a row is missing, made up or altered; names it.
    """
    fault = await _counted_fault(store, SignedCounter(store, tenant_id, keys))
    fault = fault or await _unvouched_writes_fault(store, SignedWrites(store, tenant_id, keys))
    fault = fault or await _denials_fault(store, keys) or await _requests_fault(store) or await _acts_fault(store, keys)
    if fault:
        raise ChainBroken(CONTROL, upto, f"is the last, and {fault}")


async def _counted_fault(store: Store, counter: SignedCounter) -> str | None:
    """Follow the chain of each history bucket from its first effect to its signed end."""
    signed_ends = {row.key: row async for row in _all_rows(HISTORY_BUCKETS, store)}
    chain_ends: dict[str, BucketEnd] = {}
    async for row in _all_rows(COUNTED_EFFECTS, store):
        bucket = row.key.rsplit("/", 2)[0]
        if row.key != counted_key(bucket, row.body) or row.body.before != chain_ends.get(bucket, BucketEnd()):
            return f"the counted effect `{row.key}` does not follow the one before it"
        chain_ends[bucket] = row.body.end()
    for bucket in sorted(signed_ends.keys() | chain_ends):
        for _ in range(MAX_READS):
            signed_end, end = signed_ends.get(bucket), chain_ends.get(bucket, BucketEnd())
            fault = counter.end_fault(bucket, signed_end)
            if fault is None and (signed_end.body.end if signed_end else BucketEnd()) == end:
                break
            # More can have been counted since, by runs that are driven meanwhile.
            reread = await HISTORY_BUCKETS.one(store, bucket)
            if reread == signed_end or reread is None:
                return f"the history bucket `{bucket}` {fault or 'has another effect than those up to its signed end'}"
            signed_ends[bucket] = reread
            after = f"{bucket}/{end.at_us:020d}/{end.number:012d}"
            for row in await COUNTED_EFFECTS.page(store, prefix=f"{bucket}/", after=after):
                if row.body.before != chain_ends.get(bucket, BucketEnd()):
                    return f"the counted effect `{row.key}` does not follow the one before it"
                chain_ends[bucket] = row.body.end()
    return None


async def _unvouched_writes_fault(store: Store, signed_writes: SignedWrites) -> str | None:
    """Return the fault of the first row of `UNVOUCHED_WRITES` that the runtime did not sign, or None."""
    async for row in _all_rows(UNVOUCHED_WRITES, store):
        if fault := signed_writes.fault(row):
            return fault
    return None


async def _denials_fault(store: Store, keys: Keys) -> str | None:
    """Return why a denial is not proved, or None. The run that it names must show a person's denial that proves no
    other row. A denial that the run later finds void is kept, but counts for nothing.
    """
    used = set[tuple[str, ShownDenial]]()
    async for row in _all_rows(DENIALS, store):
        run_id, entries = row.body.run_id, await store.read(row.body.run_id)
        remaining = [denial for denial in shown_denials(entries) if (run_id, denial) not in used]
        proof = await proving_denial(store, keys, entries, row, remaining)
        if proof is None:
            return f"the denial `{row.key}` is not what `{run_id[:64]}` shows"
        used.add((run_id, proof))
    return None


async def _requests_fault(store: Store) -> str | None:
    """Count claims of requests and leases. Each run has one of both, so a claim in excess of the leases is made up."""
    claims = sum([len(page) async for page in REQUESTS.key_pages(store)])
    leases = sum([len(page) async for page in LEASES.key_pages(store)])
    return f"of {claims} claims of requests {claims - leases} are of no run" if claims > leases else None


async def _acts_fault(store: Store, keys: Keys) -> str | None:
    """Compare the published artifacts and the epoch with the acts in `control`."""
    stored_pins = {row.key: row.body async for row in _all_rows(PINS, store)}
    epoch = await EPOCHS.one(store, EPOCH_KEY)
    stated: dict[str, PublishedPin] = {}
    restored: Epoch | None = None
    async for page in stream_pages(store, CONTROL):
        for entry in page:
            if entry.kind == "artifact.published":
                arguments = read_act(entry, keys).act.arguments
                stated[arguments["ref"]] = PublishedPin(arguments["digest"], arguments["kind"])
            elif entry.kind == "store.restored":
                act = read_act(entry, keys).act
                restored = Epoch(str(act.arguments["epoch"]), int(act.arguments["at_us"]), act.actor)
    for ref in sorted(stated.keys() | stored_pins):
        # What is published meanwhile can be in the acts alone.
        if stated.get(ref) != stored_pins.get(ref) and (await PINS.one(store, ref), ref in stated) != (None, False):
            reread = await PINS.one(store, ref)
            if reread is None or reread.body != stated.get(ref):
                return f"the pin `{ref}` is not what an act published"
    if (epoch.body if epoch else None) != restored:
        return "the epoch of the store is not the one that the last restore began"
    return await _artifacts_fault(store, stated)


async def _artifacts_fault(store: Store, stated: dict[str, PublishedPin]) -> str | None:
    """Return the fault of a stored artifact that differs from its digest, or of a pinned artifact that is gone."""
    digests = set[str]()
    async for row in _all_rows(ARTIFACTS, store):
        if _artifact_digest(row.body) != row.key:
            return f"the artifact `{row.key}` has another content"
        digests.add(row.key)
    missing = {ref for ref, pin in stated.items() if pin.digest not in digests}
    return f"the artifact of `{min(missing)}` is gone" if missing else None


def _artifact_digest(body: dict[str, Any]) -> str | None:
    """Return the content address of an artifact in its envelope, or of an adapter definition; None if it is neither."""
    if "payloadType" not in body:
        return content_address(body)
    try:
        return read_artifact(body["payloadType"], b64decode(body["payload"], validate=True)).digest
    except (LookupError, TypeError, ValueError, InvalidInput):
        return None


async def _all_rows(collection: Collection[Any], store: Store) -> AsyncIterator[StoredDocument[Any]]:
    after = ""
    while page := await collection.page(store, after=after):
        for row in page:
            yield row
        after = page[-1].key


def _written_version(body: Any) -> int:
    """Return how often a row that is now `body` was written. Only the row of a question is written more than once."""
    states = {"open": 1, "consumed": 3}
    return states.get(body.state, 2) if isinstance(body, ApprovalDocument) else 1


def _contradiction(collection: Collection[Any], key: str, stored: StoredDocument[Any] | None) -> str:
    difference = "is gone" if stored is None else "says something else"
    return f"contradicts the document `{collection.name}/{key}`, which {difference}"
