"""Verification of a large store: whole by ranges, and from the last checkpoint: `python -m benchmarks.verify`.

The runs are synthetic and small: real chains, signed heads, leases and lines of the index, written through the store.
Each range is verified by a process of its own, two at once, and its peak memory is read from the system. Then a few
runs are added, and another process goes on from the checkpoints of the ranges.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import outside
from benchmarks.bars import folder as data_folder
from benchmarks.bars import note, report_bar
from contextos.audit.checkpoint import joined, read_checkpoint, seal_checkpoint
from contextos.audit.verify import RunNumbers, Verification
from contextos.contracts.documents.runs import LEASES, REQUESTS, Lease, RequestClaim
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.bodies import body_fault
from contextos.contracts.entries.kinds import account_of
from contextos.contracts.entries.terms import ANY_RUN, standing_terms, stated_terms
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.journal import CONTROL, INDEX, SEMANTICS, Batch, Draft, Logged, TermChange, genesis, link
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.stores import SqliteStores
from contextos.trust.journal.record import RunOutcome, build_record
from contextos.trust.journal.signed_heads import head_payload
from contextos.trust.seal import KeyRing

TENANT = "tenant_acme_prod"
FULL, QUICK, ADDED = 1_000_000, 20_000, 200
LINES_OF_A_RUN = 2
RANGES = 4
AT_ONCE = 256
AMOUNT = 900
MAX_RSS_MB = 300
KEYS = KeyRing.from_seed(b"v" * 32)
SALT = b"0123456789abcdef"
DEPLOYMENT = {
    "runtime_version": "benchmark",
    "profile": "embedded",
    "environment": "dev",
    "unsafe": [],
    "limits": {},
    "planner": "template",
    "attachments": True,
    "semantics": SEMANTICS,
}


def fingerprint(number: int) -> str:
    return f"sha256:{number:064x}"


def record_of(number: int, run: str, log: list[Logged]) -> dict[str, Any]:
    """The record of such a run, with its ledgers."""
    return build_record(
        account_of(run, log),
        parse(InvokeRequest, outside.request(number, AMOUNT)),
        None,
        RunOutcome(end="rejected"),
        runtime_version="benchmark",
        environment="dev",
        unsafe=(),
        unsafe_stated_by=(),
        semantics=SEMANTICS,
    )


def said_by(number: int) -> list[tuple[str, dict[str, Any]]]:
    """The kinds and bodies of a run whose request was denied: what `verify` takes, and no more. The record of its end
    is made from those before it.
    """
    digest = fingerprint(number)
    received = {"request": outside.request(number, AMOUNT), "fingerprint": digest, "deployment": DEPLOYMENT}
    failure = {"code": "policy_denied", "detail": f"number {number} is denied"}
    return [
        ("run.received", {"request_digest": digest, "answer": received}),
        ("policy.decided", {"decisions": []}),
        ("plan.verified", {"verdict": "reject", "failures": [failure]}),
        ("record.revised", {}),
        ("run.ended", {"end": "rejected", "entries": 5}),
    ]


def synthetic(number: int) -> Batch:
    """The one commit of a small run that begins and ends at once."""
    run, head, entries, log = f"run_{number:016x}", genesis(TENANT, f"run_{number:016x}"), [], list[Logged]()
    record: dict[str, Any] = {}
    for seq, (kind, said) in enumerate(said_by(number), start=1):
        if kind == "record.revised":
            said = record = record_of(number, run, log)
        elif kind == "run.ended":
            said |= {"record_id": record["record_id"], "record_hash": record["record_hash"]}
        body = canonical(said)
        assert number or body_fault(run, kind, body) is None
        entries.append(link(TENANT, run, seq, head, Draft(kind, "", number + 1, "runtime", body, SALT)))
        head = entries[-1].hash
        log.append(Logged(seq, kind, "", number + 1, "runtime", said.get("answer", said), head))
    closed = {"run": run, "entries": len(entries), "head": head}
    lines = [("run.indexed", {"run": run}), ("run.closed", closed)]
    shared = tuple((INDEX, Draft(kind, run, number + 1, "runtime", canonical(said), SALT)) for kind, said in lines)
    kid, signature = KEYS.sign("head", head_payload(TENANT, run, len(entries), head))
    lease = LEASES.write(run, 0, Lease("runtime", 0))
    claim = REQUESTS.write(outside.request(number, AMOUNT)["request_id"], 0, RequestClaim(run, fingerprint(number)))
    terms = {ANY_RUN, *stated_terms(log), *standing_terms("rejected", "REJECTED", ended=True)}
    return Batch(
        run,
        tuple(entries),
        (lease, claim),
        shared,
        wake_at_us=0,
        signature=(kid, signature.hex()),
        terms=TermChange(tuple(terms), (), number + 1),
    )


async def fill(path: Path, first: int, count: int) -> None:
    """Write this many runs, `AT_ONCE` of them in one transaction."""
    stores = SqliteStores(path / "store.db")
    store = stores.tenant(TENANT)
    for start in range(first, first + count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, first + count))
        await asyncio.gather(*(store.commit(synthetic(number)) for number in numbers))
    stores.close()


async def verified(path: Path, first: int, last: int | None, since: Sequence[str], out: str) -> dict[str, Any]:
    """Verify a range in this process; return what it took."""
    stores, begun = SqliteStores(path / "store.db", read_only=True), time.monotonic()
    kept = joined([read_checkpoint((path / name).read_bytes(), TENANT, KEYS) for name in since])
    numbers = RunNumbers(first, last)
    verification = Verification(stores.tenant(TENANT), TENANT, KEYS, numbers=numbers, since=kept)
    runs = 0
    async for stream in verification.streams():
        runs += stream.stream not in (INDEX, CONTROL)
    now_us = SystemClock().now_us()
    (path / out).write_bytes(seal_checkpoint(verification.checkpoint(now_us, now_us, runtime="benchmark"), KEYS))
    stores.close()
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"runs": runs, "seconds": time.monotonic() - begun, "rss_mb": rss_mb}


def in_process(path: Path, first: int, last: int | None, since: Sequence[str], out: str) -> dict[str, Any]:
    asked = json.dumps([first, last, since, out])
    command = [sys.executable, "-m", "benchmarks.verify", "--part", asked, "--path", str(path)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(path: Path, runs: int) -> None:
    begun = time.monotonic()
    asyncio.run(fill(path, 0, runs))
    size_mb = (path / "store.db").stat().st_size / 2**20
    note("runs written", f"{runs:9,} in {time.monotonic() - begun:.0f} s, {size_mb:,.0f} MB")
    each = runs // RANGES * LINES_OF_A_RUN
    ends = [each * number for number in range(1, RANGES)]
    parts = [
        (first, last, (), f"kept{first}")
        for first, last in zip([1, *(end + 1 for end in ends)], [*ends, None], strict=True)
    ]
    begun = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda part: in_process(path, *part), parts))
    whole_s = time.monotonic() - begun
    assert sum(one["runs"] for one in found) == runs, "the ranges are not the whole"
    asyncio.run(fill(path, runs, ADDED))
    later = in_process(path, 1, None, [part[3] for part in parts], "later")
    assert later["runs"] == ADDED, "more or less than the new runs was read"
    peak_mb = max(one["rss_mb"] for one in found)
    report_bar(f"whole verification of {runs:,} runs by ranges, peak memory", peak_mb, MAX_RSS_MB, " MB")
    report_bar(f"from the last checkpoint, {ADDED} new runs, peak memory", later["rss_mb"], MAX_RSS_MB, " MB")
    report_bar("from the last checkpoint / whole, time", later["seconds"] / whole_s, 0.05)
    cost = [one["seconds"] / one["runs"] * 1000 for one in found]
    note("a run of a whole verification", f"{max(cost):9.3f} ms in one of two processes; {whole_s:.1f} s in all")
    new_ms = later["seconds"] / ADDED * 1000
    note("a new run from the last checkpoint", f"{new_ms:9.3f} ms; {later['seconds']:.2f} s in all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} runs instead of {FULL:,}")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        first, last, since, out = json.loads(options.part)
        print(json.dumps(asyncio.run(verified(options.path, first, last, since, out))))
        return
    with data_folder() as name:
        measure(Path(name), QUICK if options.quick else FULL)


if __name__ == "__main__":
    main()
