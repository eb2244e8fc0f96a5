"""The decisions of now beside those of an older commit: `python -m benchmarks.differential [RUNS]`.

Both trees get the same requests, clock and seed: refunds below and above the approval bar, approvals, denials, answers
that nobody gave, refusals, missing evidence, unknown customers and sessions. The older tree is `BASE`, from a
`git archive`, in a process of its own. Records and ledgers have to be equal but for ids, times, hashes and what `RULES`
allows, each by the page of `docs` that states it. Exits with 1 on any other difference.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.journal import LEDGERS, NONE, SEMANTICS

BASE: Final = "c3cb7b05"
ROOT: Final = Path(__file__).resolve().parents[1]
ABSENT: Final = "(absent)"
_ID: Final = re.compile(r"sha256:[0-9a-f]{64}|[0-9a-f]{12,64}")
_TIME: Final = re.compile(r"_us$|_at$|_ms$|^exp$|^iat$")

HOW: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "in any way": lambda old, new: True,
    "new": lambda old, new: bool(old == ABSENT),
    "gone": lambda old, new: bool(new == ABSENT),
    "was empty": lambda old, new: bool(new == ABSENT) and old in ([], {}),
    "was nothing": lambda old, new: bool(new == ABSENT) and not old,
    "no entry hidden": lambda old, new: bool(new == ABSENT) and all(one["surfaced"] for one in old),
    "new or gone": lambda old, new: ABSENT in (old, new),
    "some are gone": lambda old, new: not set(map(str, new)) - set(map(str, old)) and len(new) < len(old),
    "some are new": lambda old, new: not set(old) - set(new),
    "by the rules of now": lambda old, new: bool(new == SEMANTICS),
    "a number": lambda old, new: isinstance(old, int) and isinstance(new, int),
    "lower": lambda old, new: bool(new < old),
    "more words": lambda old, new: bool(new.startswith(old)),
}
_LEDGER: Final = r"context\.compiled/context_ledger"
_ENVELOPE: Final = r"tool\.\w+/(answer/)?(envelope|call)"
_OF_CALL: Final = "args_digest|definition_digest|output_digest|provenance"
_ASKED_BY_KEY: Final = r"run\.(received|resumed|cancel_requested)|tool\.returned|approval\.answered|effect\.settled"
RULES: Final = (
    # what is allowed, the page of `docs` that states it, where, and how
    ("empty members are left out", "adr/0073", r"policy\.decided/.*", "was empty"),
    ("no decision at `plan` that repeats", "adr/0073", r"-policy\.decided plan/\d+", "in any way"),
    ("no such decision in the record", "adr/0073", r"record(\.revised)?/policy_decisions", "some are gone"),
    ("a context by its digests", "adr/0073", r"context\.compiled/compiled_prompt", "gone"),
    ("manifests too", "adr/0073", r"context\.compiled/manifests/(evidence_\w+|tool_\w+|trace_context)", "gone"),
    ("nothing left out or redacted", "adr/0073", r"context\.compiled/manifests/(omissions|redactions)", "was empty"),
    ("no tool hidden", "adr/0073", r"context\.compiled/manifests/surface_report", "no entry hidden"),
    ("the same identity", "adr/0073", r"identity\.resolved/answer/principals/\w+", "new or gone"),
    ("the number of the rules", "adr/0073", r".*/semantics", "by the rules of now"),
    ("pins by their digest", "adr/0073", r"record(\.revised)?/lineage/pins(_digest)?", "new or gone"),
    ("a packet by its id", "adr/0073", r"replay\.packed/.*", "gone"),
    ("who runs is said once", "adr/0073", r"run\.context/(agent|intent|locale|metadata|\w+_id|user)", "new or gone"),
    ("nothing is used yet", "adr/0073", r"run\.context/run_budget/atomic_usage", "gone"),
    ("a ledger without request and pins", "adr/0073", rf"{_LEDGER}/(pack_ref|request_id|trace_id|estimator)", "gone"),
    ("without what the report says", "adr/0073", rf"{_LEDGER}/(budget|stage_digests/manifests_and_controls)", "gone"),
    ("a report without the allocation", "adr/0073", r"context\.compiled/budget_report/tokens_allocated", "gone"),
    ("no bundles in a decision", "adr/0073", r"policy\.decided/.*bundle_ids", "gone"),
    ("the digest of an item follows", "adr/0073", r"(evidence\.retrieved|memory\.recalled)/answer/#/digest", "gone"),
    ("what the run says of a call", "adr/0073", rf"{_ENVELOPE}/(envelope_version|\w+_id|auth_ref)", "gone"),
    ("nothing that is empty in one", "adr/0073", rf"{_ENVELOPE}/(idempotency_key|error|output|\w+s)", "was nothing"),
    ("no redaction and no retry", "adr/0073", rf"{_ENVELOPE}/metadata/(redaction_applied|retries)", "was nothing"),
    ("who approved, if anybody", "adr/0073", r"tool\.dispatching/approval_id", "was nothing"),
    ("what follows from a call", "adr/0073", rf"tool\.\w+/(answer/)?({_OF_CALL})", "gone"),
    ("what a call sets aside", "adr/0073", r"tool\.dispatching/reserv(ation|ed_cents)", "new or gone"),
    ("what a binding says", "adr/0073", r"approval\.asked/(shown|\w+_hash|approval_mode_effective|denial_key)", "gone"),
    ("the digest of frozen evidence", "adr/0073", r"evidence\.frozen/snapshot_hash", "gone"),
    ("what is another now", "adr/0073", r"evidence\.rechecked/answer/.*", "new or gone"),
    ("no digest of what kind and key say", "adr/0073", rf"({_ASKED_BY_KEY})/request_digest", "gone"),
    ("no findings where there are none", "adr/0073", r"(run\.scored|record.*/scorecard)/\w+/findings", "was empty"),
    ("as many entries as there are", "adr/0073", r"(run\.ended|record.*/lineage/ledgers/\w+)/entries", "a number"),
    ("where arguments come from", "adr/0040", r"\+arguments\.traced .*", "in any way"),
    ("what is signed, in clear", "adr/0058", r"approval\.asked/binding/(mode|untrusted|instructions|secrets)", "new"),
    ("with evidence and deadline", "adr/0058", r"approval\.asked/(evidence|shown/until)", "new"),
    ("no digest of what was shown", "adr/0058", r"approval\.asked/(binding/)?shown_digest", "gone"),
    ("the statement that is signed", "adr/0058", r"approval\.answered/answer/assertion/token", "in any way"),
    ("what code imports is pinned", "adr/0064", r".*/packages:\w+", "new"),
    ("the runtime's version binds nothing", "adr/0064", r"evidence\.rechecked/answer/runtime", "gone"),
    ("the envelope of a refused call", "adr/0069", r"tool\.refused/call", "new"),
    ("envelopes in full", "adr/0069", r"tool\.dispatching/envelope/metadata/\w+", "new"),
    ("with their transcript", "adr/0069", r"tool\.returned/answer/envelope/metadata/tool_transcript_id", "new"),
    ("confidence is the lowest score", "adr/0069", r"record(\.revised)?/confidence", "lower"),
    ("the environment served", "adr/0067", r".*/(lineage|deployment)/environment", "new"),
    ("a call has a token of its own", "adr/0043", r"run\.received/.*/credential_ttl_s", "new"),
    ("whose denial it is, is looked up", "adr/0062", r"\+identity\.resolved redeem/.*", "in any way"),
    ("a claim lives 60 s", "reference/settings", r"run\.received/.*/claim_ttl_s", "lower"),
    ("a claim has platform scopes", "identity", r".*claim/scopes", "some are new"),
    ("a snapshot names who wrote it", "design/journal", r"run\.pinned/answer/snapshot_line", "new"),
    ("a failure names the missing seed", "(words)", r".*/failures/#/detail", "more words"),
)


def runs_of(path: Path, tree: Path, example: Path, count: int) -> list[dict[str, Any]]:
    """Return the runs that a tree makes of an example, in a process of its own."""
    path.mkdir()
    shutil.copytree(example, path / "example")
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    here = [sys.executable, "-P", str(Path(__file__).with_name("differential_runs.py")), str(path), str(count)]
    subprocess.run(here, cwd=tree, env=environment, check=True)
    return [json.loads(line) for line in (path / "runs.jsonl").read_text("utf-8").splitlines()]


def plain(value: Any, name: str = "") -> Any:
    """Return a JSON value without ids, hashes and times."""
    if isinstance(value, dict):
        return {_ID.sub("*", one): plain(found, one) for one, found in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str):
        return _ID.sub("*", value)
    return "time" if _TIME.search(name) and isinstance(value, int | float) else value


def compared(old: Any, new: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of two JSON values: the place, a JSON Pointer behind `place`, and what both have there."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from compared(old.get(name, ABSENT), new.get(name, ABSENT), f"{place}/{name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for one, other in zip(old, new, strict=True):
            yield from compared(one, other, f"{place}/#")
    elif type(old) is not type(new) or old != new:
        yield place, old, new


def numbered(entries: list[dict[str, Any]]) -> dict[tuple[str, str, int], Any]:
    """Return the bodies of entries by kind, key without ids, and how many of both came before."""
    before, found = Counter[tuple[str, str]](), {}
    for one in entries:
        at = one["kind"], _ID.sub("*", one["key"])
        found[*at, before[at]] = plain(one["body"])
        before[at] += 1
    return found


def differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of two runs: of the records, the entries of each ledger in order, and their bodies. An
    entry that is new or gone has `+` or `-` before its kind.
    """
    yield from compared(plain(old["record"]), plain(new["record"]), "record")
    logs = [numbered(old["entries"]), numbered(new["entries"])]
    for sign, log, other in (("-", *logs), ("+", *reversed(logs))):
        yield from ((f"{sign}{at[0]} {at[1]}", log[at], None) for at in log if at not in other)
    for ledger in (*LEDGERS, NONE):
        both = [[at for at in log if KINDS[at[0]].ledger == ledger and at in logs[0] and at in logs[1]] for log in logs]
        yield from compared(*both, f"order of {ledger}")
        for at in both[0]:
            yield from compared(logs[0][at], logs[1][at], at[0])


def main(count: int) -> int:
    found, used, refused = Counter[str](), Counter[str](), list[str]()
    with TemporaryDirectory() as name:
        packed = subprocess.run(["git", "archive", BASE], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(Path(name) / "base", filter="data")
        trees = {"old": Path(name) / "base", "new": ROOT}
        example = trees["old"] / "examples" / "support_refund"
        old, new = (runs_of(Path(name) / side, tree, example, count) for side, tree in trees.items())
    for number, (before, after) in enumerate(zip(old, new, strict=True)):
        for place, one, other in differences(before, after):
            rule = next((rule for rule in RULES if re.fullmatch(rule[2], place) and HOW[rule[3]](one, other)), None)
            if rule is not None:
                used[rule[0]] += 1
                continue
            found[place] += 1
            if found[place] == 1:
                refused.append(f"{place} (run {number}, {before['case']}): {str(one)[:200]} | {str(other)[:200]}")
    for one in refused:
        print(f"{found[one.partition(' (run ')[0]]} times {one}")
    print("".join(f"allowed {used[name]} times by docs/{page}: {name}\n" for name, page, *_ in RULES), end="")
    print(f"{count} runs, {sum(found.values())} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 1_000))
