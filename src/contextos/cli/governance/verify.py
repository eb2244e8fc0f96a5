"""`verify`: check the chains and signatures of a tenant, of a part of it, or of an export."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    about,
    read_file,
    usage_error,
    with_read_context,
)
from contextos.cli.governance.audit import PersonOption, TrustedKeyOption, exported, proof_document, proof_lines
from contextos.cli.terminal import print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidInput, Problem
from contextos.files import replace_file, why_unwritten

if TYPE_CHECKING:
    from contextos.audit.checkpoint import Checkpoint
    from contextos.audit.exported import Export
    from contextos.audit.verify import RunNumbers, Verification, VerifiedStream
    from contextos.deployment.witness import Restoration
    from contextos.workspace.verification import Compared

MAX_LISTED: Final = 1000
"""How many streams are listed by name. The others are only counted."""
CHECKPOINT_INTERVAL_S: Final = 5.0
"""The least seconds between two writes of the checkpoint file while a verification goes on."""
BELONGS_TO_NO_RUN: Final = (
    "control, what its acts state, the graph, the witnessed heads, and whether the index names every run"
)
_NUMBERS: Final = re.compile(r"([1-9][0-9]{0,15})?:([1-9][0-9]{0,15})?")


class Part(NamedTuple):
    """The part of a tenant to verify: the range `runs` as `A:B`, the checkpoint files `since` to go on from, and the
    checkpoint file to write.
    """

    runs: str = ""
    since: tuple[Path, ...] = ()
    checkpoint: Path | None = None


def verify_command(
    file: Annotated[
        Path | None, typer.Argument(metavar="[EXPORT]", help="An export file. Without it, the tenant is verified.")
    ] = None,
    trusted_key: TrustedKeyOption = None,
    person: PersonOption = None,
    witness: Annotated[
        str, typer.Option(metavar="FILE|URL", help="A copy of the witness to use instead of the one in the settings.")
    ] = "",
    runs: Annotated[
        str, typer.Option(metavar="A:B", help="Only the runs with these numbers: those of their first index lines.")
    ] = "",
    since: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Go on from this checkpoint. Repeat it for those of adjacent ranges."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what is verified to this file, also while it goes on.")
    ] = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Verify the chains and signatures of a tenant or an export.

    The tenant's own streams are compared with the heads at the witness. The output names the witness, or says that a
    cut cannot be excluded. It also says which parts were not read.
    """
    part = Part(runs, tuple(since or ()), checkpoint)
    _refuse_misuse(file, trusted_key or [], person or [], witness, part)
    if file is not None:
        export, persons = exported(file, trusted_key or [], person or [], workspace, tenant)
        result = _Result.of(_export_rows(export))
        document = {"tenant": export.tenant, "acts": len(export.acts)} | proof_document(export, persons)
        result.say(document, *proof_lines(export, persons))
    else:
        result = with_read_context(workspace, tenant, partial(_verify_stored, witness, part), ask_witness=False)
    lines = [
        f"{row['stream']:<20}  {row['entries']:>5} entries  {row['head'][:19]}{_erased_text(row)}{_state_text(row)}"
        for row in result.listed
    ]
    if result.streams > len(result.listed):
        lines.append(f"... and {result.streams - len(result.listed)} more streams")
    lines += [f"{result.streams} streams, {result.entries} entries: all verify", *result.said]
    totals = {"verified": result.listed, "streams": result.streams, "entries": result.entries}
    print_result(totals | result.document, lines, as_json=as_json)
    return 0


@dataclass(slots=True)
class _Result:
    """The result of a verification: the listed streams, the number of streams and of entries that were read, and
    further lines (`said`) and members (`document`) of the output.
    """

    listed: list[dict[str, Any]] = field(default_factory=list)
    streams: int = 0
    entries: int = 0
    said: list[str] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, streams: list[dict[str, Any]]) -> _Result:
        return cls(streams[:MAX_LISTED], len(streams), sum(row["entries"] for row in streams))

    def say(self, document: Mapping[str, Any], *lines: str) -> None:
        """Add members to the JSON document, and lines to the readable output."""
        self.document |= document
        self.said += lines

    def add(self, stream: VerifiedStream) -> None:
        """Count a stream. The tenant's own streams are always listed, with `index` first."""
        self.streams += 1
        self.entries += stream.entries - stream.unread
        is_shared = _is_own(stream.stream)
        if is_shared or len(self.listed) < MAX_LISTED:
            names = ("stream", "entries", "head", "erased", "ended")
            row = {name: getattr(stream, name) for name in names} | {"erased": list(stream.erased)}
            self.listed.insert(0 if stream.stream == "index" else len(self.listed), row)


def _compared_document(compared: Compared) -> dict[str, Any]:
    return {
        "witness": compared.witness,
        "witnessed": compared.lengths,
        "earlier_witnesses": compared.earlier,
        "restored": [restored_document(restoration) for restoration in compared.past],
    }


def _compared_lines(compared: Compared) -> Iterator[str]:
    """Yield the lines on whether `index` or `control` can have been cut, and on the entries that restores removed."""
    unproved = "truncation of index and control cannot be excluded"
    if compared.lengths:
        yield "witnessed: " + ", ".join(f"{name} up to entry {seq}" for name, seq in sorted(compared.lengths.items()))
        yield f"compared with the witness {displayed(compared.witness or '')}"
    elif compared.witness is None:
        yield f"{unproved}: there is no witness"
    else:
        yield f"{unproved}: the witness {displayed(compared.witness)} has no head of this tenant yet"
    for name in compared.earlier:
        yield f"witnessed elsewhere before: compare with `contextos verify --witness {displayed(name)}`"
    yield from map(restored_line, compared.past)


async def _verify_stored(witness: str, part: Part, context: CommandContext) -> _Result:
    """Verify the tenant's streams. Return them, their comparison with the witness, and the parts not read."""
    from contextos.audit.checkpoint import joined, read_checkpoint
    from contextos.audit.verify import Verification
    from contextos.workspace.verification import verify_stored

    tenant_id, keys, numbers = context.tenant_id, context.app.keys, _run_numbers(part.runs)
    checkpoints = []
    for path in part.since:
        with about(path):
            checkpoints.append(read_checkpoint(read_file(path), tenant_id, keys))
    since = joined(checkpoints)
    verification = Verification(context.store, tenant_id, keys, numbers=numbers, since=since)
    file = _CheckpointFile(part.checkpoint, verification, context)
    result = _Result()

    def count(stream: VerifiedStream) -> None:
        result.add(stream)
        file.write_sometimes()

    compared = await verify_stored(
        context.app, tenant_id, verification, count, whole=not numbers.last, since=since, witness=witness
    )
    if compared is None:
        result.say(
            {"range": numbers._asdict()}, f"not verified: {BELONGS_TO_NO_RUN}; the range without an end does that"
        )
    else:
        result.say(_compared_document(compared), *_compared_lines(compared))
    if since:
        result.say({"not_read": _not_read(since, verification)}, *_not_read_lines(since, verification))
    if part.checkpoint:
        checkpoint = file.write()
        line = f"checkpoint: up to line {checkpoint.last} of the index, with {len(checkpoint.open)} open runs"
        result.say({"checkpoint": {"lines": checkpoint.last, "open_runs": len(checkpoint.open)}}, line)
    return result


class _CheckpointFile:
    """The file in which a verification keeps its checkpoint. Without a path nothing is written.

    Raises:
        InvalidInput: the file at `path` exists and is not a checkpoint.
        InvalidSettings: the workspace has no key to sign a checkpoint with.
    """

    def __init__(self, path: Path | None, verification: Verification, context: CommandContext) -> None:
        self._path, self._verification, self._context = path, verification, context
        self._begun_us = context.deployment.ports.clock.now_us()
        self._written_at, self._lines = time.monotonic(), verification.verified_lines
        if path is not None:
            from contextos.audit.checkpoint import is_checkpoint

            if os.path.lexists(path) and not is_checkpoint(read_file(path)):
                problem = Problem("", "exists", f"`{path}` is not a checkpoint, and is kept", "name another file")
                raise InvalidInput(problem)
            self._content()

    def write_sometimes(self) -> None:
        """Write the file if more lines were verified and the last write is at least `CHECKPOINT_INTERVAL_S` ago."""
        late = time.monotonic() - self._written_at >= CHECKPOINT_INTERVAL_S
        if self._path is not None and late and self._verification.verified_lines > self._lines:
            self.write()

    def write(self) -> Checkpoint:
        """Replace the file. Raises `InvalidInput` if it cannot be written."""
        checkpoint, raw = self._content()
        assert self._path is not None, "the caller asks before"
        try:
            replace_file(self._path, raw)
        except OSError as error:
            detail = f"`{self._path}` cannot be written: {why_unwritten(error)}"
            raise InvalidInput(Problem("", "unwritable", detail, "name another file")) from None
        self._written_at, self._lines = time.monotonic(), checkpoint.last
        return checkpoint

    def _content(self) -> tuple[Checkpoint, bytes]:
        from contextos import __version__
        from contextos.audit.checkpoint import seal_checkpoint

        now_us = self._context.deployment.ports.clock.now_us()
        checkpoint = self._verification.checkpoint(self._begun_us, now_us, runtime=__version__)
        return checkpoint, seal_checkpoint(checkpoint, self._context.app.keys)


def _not_read(since: Checkpoint, verification: Verification) -> dict[str, Any]:
    runs = since.runs - verification.runs_read_again
    return {"runs": runs, "lines": since.last, "from_us": since.begun_at_us, "to_us": since.at_us}


def _not_read_lines(since: Checkpoint, verification: Verification) -> Iterator[str]:
    from contextos.audit.checkpoint import utc

    runs = since.runs - verification.runs_read_again
    yield f"not read again: {runs} runs and {since.last - since.first + 1} lines of the index"
    yield f"they were verified between {utc(since.begun_at_us)} and {utc(since.at_us)}"


def _run_numbers(runs: str) -> RunNumbers:
    from contextos.audit.verify import RunNumbers

    match = _NUMBERS.fullmatch(runs or ":")
    first, last = (int(match[1] or 1), int(match[2]) if match[2] else None) if match else (1, 0)
    if last is not None and last < first:
        problem = Problem("", "usage", f"`{runs[:64]}` is not a range of runs", "write it like `1:1000`, or `1001:`")
        raise InvalidInput(problem)
    return RunNumbers(first, last)


def _refuse_misuse(
    file: Path | None, trusted_key: Sequence[str], person: Sequence[str], witness: str, part: Part
) -> None:
    """Raise `InvalidInput` for options that do not fit each other, or for a witness that is not there."""
    from contextos.workspace.settings import WitnessPlace
    from contextos.workspace.settings.reading import check_value

    if file is None and trusted_key:
        raise usage_error("--trusted-key is for an export", "name the export's file")
    if file is None and person:
        raise usage_error("--person is for an export", "name the export's file")
    if file is not None and witness:
        raise usage_error("--witness is for a tenant", "leave out the export's file")
    if file is not None and part != Part():
        detail = "--runs, --since and --checkpoint are for a tenant"
        raise usage_error(detail, "leave out the export's file")
    if witness and _run_numbers(part.runs).last:
        detail = "a range with an end is not compared with a witness"
        raise usage_error(detail, "leave out --witness, or the end of the range")
    if witness and "://" not in witness and not os.path.isfile(witness):
        raise InvalidInput(Problem("", "unreadable", f"there is no witness `{witness}`", "check the path"))
    if witness:
        check_value(WitnessPlace, witness, "/witness")


def _export_rows(export: Export) -> list[dict[str, Any]]:
    from contextos.cli.runs.escalations import decision_document

    return [
        {
            "stream": name,
            "entries": len(entries),
            "head": entries[-1].hash,
            "erased": [entry.seq for entry in entries if entry.body is None],
            "ended": entries[-1].kind == "run.ended",
            "decision": decision_document(export.decisions[name]),
        }
        for name, entries in export.streams.items()
    ]


def _is_own(stream: str) -> bool:
    """Return whether a stream belongs to the tenant itself (such as `index`), and not to a run."""
    from contextos.contracts.journal import SHARED_STREAMS

    return stream in SHARED_STREAMS


def _state_text(stream: dict[str, Any]) -> str:
    is_shared = _is_own(stream["stream"])
    states = [] if is_shared or stream["ended"] else ["has not ended"]
    states += [stream["decision"]["status"] or "erased"] if "decision" in stream else []
    return f"  {', '.join(states)}" if states else ""


def _erased_text(stream: dict[str, Any]) -> str:
    return f"  erased: {', '.join(map(str, stream['erased']))}" if stream["erased"] else ""


def restored_line(restoration: Restoration) -> str:
    """Return one line of text: the entries of a journal stream that a restore from a backup removed."""
    from contextos.audit.checkpoint import utc

    part = f"{restoration.gone} entries of {restoration.stream} after entry {restoration.kept}"
    return f"restored at {utc(restoration.at_us)}: {part} are gone"


def restored_document(restoration: Restoration) -> dict[str, Any]:
    """Return the number of entries of a journal stream that a restore from a backup removed, as JSON."""
    return {**restoration._asdict(), "gone": restoration.gone}
