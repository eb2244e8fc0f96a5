"""`replay`, `verify`, `export`: what auditors do, with our store or with nothing but an export and a key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from contextos.cli.acting import ActKeyOption, ByOption, named_actor
from contextos.cli.command_context import (
    WORKSPACE,
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    about,
    read_file,
    with_context,
    with_read_context,
)
from contextos.cli.terminal import print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import Integrity, InvalidInput, NotFound, Problem
from contextos.files import NewFiles

if TYPE_CHECKING:
    from contextos.operations.witness import Restoration

TrustedKeyOption = Annotated[
    list[str] | None,
    typer.Option("--trusted-key", metavar="HEX", help="Trust this public key instead of the workspace's."),
]


def replay_command(
    run: Annotated[str, typer.Argument(metavar="RUN|EXPORT", help="A run id, a request id, or an export file.")],
    trusted_key: TrustedKeyOption = None,
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Derive a run again from its journal and compare.

    No external system is reached. An export with --trusted-key needs no workspace.
    """
    if run == "-" or os.path.isfile(run):
        import asyncio

        from contextos.audit.export import replay_export

        replayed = asyncio.run(replay_export(_exported(Path(run), trusted_key or [], workspace, tenant)))
    elif trusted_key:
        raise InvalidInput(Problem("", "usage", f"there is no export `{run[:200]}`", "--trusted-key is for a file"))
    else:
        replayed = with_read_context(workspace, tenant, partial(_replayed, run))
    documents = [
        {
            "run_id": one.run_id,
            "equal": True,
            "status": one.status,
            "record_hash": one.record_hash,
            "compared": one.compared,
            "erased": list(one.missing),
        }
        for one in replayed
    ]
    lines = [f"{one.run_id} equal: {one.compared} entries, {one.status}, {one.record_hash}" for one in replayed]
    print_result({"replayed": documents}, lines, as_json=as_json)
    return 0


def verify_command(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[EXPORT]", help="An export file. Without it, the whole tenant is verified."),
    ] = None,
    trusted_key: TrustedKeyOption = None,
    witness: Annotated[
        str, typer.Option(metavar="FILE|URL", help="A copy of the witness to use instead of the one in the settings.")
    ] = "",
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Verify the chains and signatures of a tenant or an export.

    The tenant's own streams are compared with the heads at the witness.
    The output names it, or says that a cut cannot be excluded.
    """
    if file is None and trusted_key:
        raise InvalidInput(Problem("", "usage", "--trusted-key is for an export", "name the export's file"))
    if file is not None and witness:
        raise InvalidInput(Problem("", "usage", "--witness is for a tenant", "leave out the export's file"))
    if witness and "://" not in witness and not os.path.isfile(witness):
        raise InvalidInput(Problem("", "unreadable", f"there is no witness `{witness}`", "check the path"))
    if witness:
        from contextos.settings import check_witness

        check_witness(witness)
    if file is not None:
        streams, compared = _covered(file, trusted_key or [], workspace, tenant), None
    else:
        streams, compared = with_read_context(workspace, tenant, partial(_stored, witness), ask_witness=False)
    total = sum(one["entries"] for one in streams)
    lines = [f"{one['stream']:<20}  {one['entries']:>5} entries  {one['head'][:19]}{_erased(one)}" for one in streams]
    lines += [f"{len(streams)} streams, {total} entries: all verify", *(compared.lines() if compared else ())]
    print_result({"verified": streams} | (compared.document() if compared else {}), lines, as_json=as_json)
    return 0


def export_command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run ids or request ids.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write. An existing file is not replaced.")
    ],
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Write runs to a file that others can verify and replay.

    Runs that are too large for one file are written to several.
    """

    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> Any:
        from contextos.audit.export import record_export, signed_exports

        run_ids = [await context.run_id(run) for run in dict.fromkeys(runs)]
        exported = await signed_exports(context.deployment, context.tenant_id, run_ids)
        with NewFiles() as new:
            files = [(_numbered(out, number), one) for number, one in enumerate(exported, start=1)]
            for path, one in files:
                _write(new, path, one.raw)
            await record_export(context.deployment, context.tenant_id, exported, by=actor)
            new.publish()
        kid = context.app.keys.kids("export")[0]
        public = context.app.keys.public_key("export", kid)
        assert public is not None, "the key that signs is trusted"
        return files, public.hex()

    if os.path.lexists(out):
        raise _exists(out)
    files, public_key = with_context(workspace, tenant, operation)
    documents = [{"file": str(path), "runs": list(one.runs), "bytes": len(one.raw)} for path, one in files]
    lines = [f"{path}: {len(one.runs)} runs, {len(one.raw)} bytes" for path, one in files]
    for path, _ in files:
        lines += [f"next: contextos {command} {path} --trusted-key {public_key}" for command in ("verify", "replay")]
    print_result({"files": documents, "public_key": public_key}, lines, as_json=as_json)
    return 0


def erase_command(
    run: RunArgument,
    seq: Annotated[int, typer.Argument(metavar="SEQ", min=1, help="The number of the entry, as `show --json` has it.")],
    by: ByOption,
    key: ActKeyOption = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason; it is recorded and signed.")] = "",
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Erase the body of one entry of a run.

    The chain still verifies, and the erasure is on record.
    """
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> str:
        from contextos.operations.operator import erase_entry

        run_id = await context.run_id(run)
        await erase_entry(context.deployment, context.tenant_id, run_id, seq, by=actor, reason=reason)
        return run_id

    run_id = with_context(workspace, tenant, operation)
    print_result({"run_id": run_id, "erased": seq}, [f"{run_id} entry {seq} is erased"], as_json=as_json)
    return 0


def _numbered(path: Path, number: int) -> Path:
    """The name of the `number`-th file of an export: `runs.jsonl`, `runs-2.jsonl`, ..."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


class _Compared(NamedTuple):
    """What a tenant's own streams were compared with, and how far each was witnessed.

    `witness` is the name of the witness, or None; `earlier` are others that `control` names.
    """

    witness: str | None
    lengths: dict[str, int]
    earlier: tuple[str, ...]
    past: list[Restoration]

    def document(self) -> dict[str, Any]:
        restored = [restored_document(one) for one in self.past]
        return {
            "witness": self.witness,
            "witnessed": self.lengths,
            "earlier_witnesses": self.earlier,
            "restored": restored,
        }

    def lines(self) -> Iterator[str]:
        """Whether the index or control stream can have been cut, and what restores left of them."""
        unproved = "truncation of index and control cannot be excluded"
        if self.lengths:
            yield "witnessed: " + ", ".join(f"{name} up to entry {seq}" for name, seq in sorted(self.lengths.items()))
            yield f"compared with the witness {displayed(self.witness or '')}"
        elif self.witness is None:
            yield f"{unproved}: there is no witness"
        else:
            yield f"{unproved}: the witness {displayed(self.witness)} has no head of this tenant yet"
        for name in self.earlier:
            yield f"witnessed elsewhere before: compare with `contextos verify --witness {displayed(name)}`"
        yield from map(restored_line, self.past)


async def _stored(witness: str, context: CommandContext) -> tuple[list[dict[str, Any]], _Compared]:
    """The tenant's verified streams, and what they were compared with."""
    from contextos.app import witness_at
    from contextos.audit.verify import verify_facts, verify_tenant
    from contextos.contracts.journal import CONTROL
    from contextos.operations.witness import restorations, witness_place, witnessed_lengths
    from contextos.settings import has_default_witness

    publisher, tenant_id = context.app.witness_publisher, context.tenant_id
    place = witness_place(witness) if witness else publisher.place if publisher else None
    # The witnessed heads are read first: the streams can grow in between and must not shrink.
    if witness:
        heads = await witness_at(witness, Path()).heads(tenant_id)
    else:
        heads = await publisher.witnessed_heads(tenant_id) if publisher else ()
    verified = await verify_tenant(context.store, tenant_id, context.app.keys, heads)
    if not any(one.entries for one in verified):
        raise NotFound(f"nothing is stored of `{tenant_id[:64]}`, so nothing verifies; check the tenant's name")
    await verify_facts(context.app.stores.graph(tenant_id), context.store, context.app.keys)
    if place and not heads and (witness or not has_default_witness(context.app.settings)):
        detail = f"the witness knows nothing of `{tenant_id}`, which has entries; it was emptied, or is another"
        raise Integrity(f"{detail}: name the right one with `--witness`")
    begun = [one.key for one in await context.store.read(CONTROL) if one.kind == "witness.begun"]
    known = {place, publisher.place if publisher else None}
    earlier = tuple(name for name in begun if name not in known)
    streams = [
        {"stream": one.stream, "entries": one.entries, "head": one.head, "erased": list(one.erased), "ended": one.ended}
        for one in verified
    ]
    return streams, _Compared(place, witnessed_lengths(heads), earlier, restorations(heads))


def restored_line(one: Restoration) -> str:
    """Return one line of text on what a restore from a backup left of a journal stream."""
    when = datetime.fromtimestamp(one.at_us / 1e6, UTC).isoformat(timespec="seconds")
    return f"restored at {when}: {one.gone} entries of {one.stream} after entry {one.kept} are gone"


def restored_document(one: Restoration) -> dict[str, Any]:
    """Return what a restore from a backup left of a journal stream, as JSON."""
    return {**one._asdict(), "gone": one.gone}


async def _replayed(run: str, context: CommandContext) -> Any:
    from contextos.audit.replay import replay

    return [await replay(context.deployment, context.tenant_id, await context.run_id(run))]


def _exported(file: Path, trusted: list[str], workspace: Path, tenant: str) -> Any:
    """The verified export, by the given public keys or by the workspace's."""
    from contextos.audit.export import read_export

    raw = read_file(file)
    if trusted:
        ring = _ring(trusted)
        with about(file):
            return read_export(raw, ring)

    async def operation(context: CommandContext) -> Any:
        with about(file):
            return read_export(raw, context.app.keys)

    return with_read_context(workspace, tenant, operation)


def _covered(file: Path, trusted: list[str], workspace: Path, tenant: str) -> list[dict[str, Any]]:
    return [
        {
            "stream": name,
            "entries": len(entries),
            "head": entries[-1].hash if entries else "",
            "erased": [one.seq for one in entries if one.body is None],
            "ended": bool(entries) and entries[-1].kind == "run.ended",
        }
        for name, entries in _exported(file, trusted, workspace, tenant).streams.items()
    ]


def _ring(trusted: list[str]) -> Any:
    from contextos.trust.seal import KeyRing

    try:
        return KeyRing({}, {"export": [bytes.fromhex(one) for one in trusted]})
    except ValueError:
        problem = Problem("", "not_a_key", "a trusted key is 64 hex digits", "take it from `contextos export`")
        raise InvalidInput(problem) from None


def _exists(path: Path) -> InvalidInput:
    return InvalidInput(Problem("", "exists", f"`{path}` exists already", "name a new file"))


def _write(new: NewFiles, path: Path, raw: bytes) -> None:
    try:
        new.write(path, raw)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        detail = f"`{path}` cannot be written: {(error.strerror or str(error)).lower()}"
        raise InvalidInput(Problem("", "unwritable", detail, "name another file")) from None


def _erased(stream: dict[str, Any]) -> str:
    return f"  erased: {', '.join(map(str, stream['erased']))}" if stream["erased"] else ""
