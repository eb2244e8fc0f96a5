"""`replay`, `verify`, `export`: what auditors do, with our store or with nothing but an export and a key."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.command_context import (
    WORKSPACE,
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    about,
    read_file,
    with_context,
    with_read_context,
)
from contextos.cli.terminal import print_result
from contextos.errors import InvalidInput, Problem

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
    if run == "-" or Path(run).is_file():
        import asyncio

        from contextos.audit.export import replay_export

        replayed = asyncio.run(replay_export(_exported(Path(run), trusted_key or [], workspace, tenant)))
    elif trusted_key:
        raise InvalidInput(Problem("", "usage", f"there is no export `{run[:200]}`", "--trusted-key is for a file"))
    else:
        replayed = with_context(workspace, tenant, partial(_replayed, run))
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

    If the tenant has a witness, the tenant's own streams are compared with the witnessed heads.
    """
    if file is None and trusted_key:
        raise InvalidInput(Problem("", "usage", "--trusted-key is for an export", "name the export's file"))
    if file is not None and witness:
        raise InvalidInput(Problem("", "usage", "--witness is for a tenant", "leave out the export's file"))
    if witness and "://" not in witness and not Path(witness).is_file():
        raise InvalidInput(Problem("", "unreadable", f"there is no witness `{witness}`", "check the path"))
    if witness:
        from contextos.settings import check_witness

        check_witness(witness)
    if file is not None:
        streams, told, there, past = _covered(file, trusted_key or [], workspace, tenant), None, False, []
    else:
        streams, told, there, past = with_read_context(workspace, tenant, partial(_stored, witness))
    total = sum(one["entries"] for one in streams)
    lines = [f"{one['stream']:<20}  {one['entries']:>5} entries  {one['head'][:19]}{_erased(one)}" for one in streams]
    lines += [f"{len(streams)} streams, {total} entries: all verify", *_truncation(told, there)]
    lines += [restored_line(one) for one in past]
    document = {"witnessed": told, "restored": [restored_document(one) for one in past]}
    print_result({"verified": streams} | ({} if told is None else document), lines, as_json=as_json)
    return 0


def export_command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run ids or request ids.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write. An existing file is not replaced.")
    ],
    by: Annotated[str, typer.Option(metavar="NAME", help="Name of the exporter; recorded in the control ledger.")] = "",
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Write runs to a file that others can verify and replay."""

    async def operation(context: CommandContext) -> Any:
        from contextos.audit.export import export_runs

        run_ids = [await context.run_id(run) for run in dict.fromkeys(runs)]
        raw = await export_runs(context.deployment, context.tenant_id, run_ids, by=by or _user())
        kid = context.app.keys.kids("export")[0]
        public = context.app.keys.public_key("export", kid)
        assert public is not None, "the key that signs is trusted"
        return run_ids, raw, public.hex()

    if out.exists():
        raise _exists(out)
    run_ids, raw, key = with_context(workspace, tenant, operation)
    _write_new(out, raw)
    lines = [f"{out}: {len(run_ids)} runs, {len(raw)} bytes"]
    lines += [f"next: contextos {command} {out} --trusted-key {key}" for command in ("verify", "replay")]
    print_result({"file": str(out), "runs": run_ids, "bytes": len(raw), "public_key": key}, lines, as_json=as_json)
    return 0


async def _stored(witness: str, context: CommandContext) -> Any:
    """The tenant's verified streams, and up to which entry each of its own streams was witnessed."""
    from contextos.app import witness_at
    from contextos.audit.verify import verify_tenant
    from contextos.operations.witness import restorations, witnessed_lengths

    known = (
        witness_at(witness, Path())
        if witness
        else context.app.witness_publisher and context.app.witness_publisher.witness
    )
    # The witnessed heads are read first: the streams can grow in between and must not shrink.
    heads = await known.heads(context.tenant_id) if known else ()
    verified = await verify_tenant(context.store, context.tenant_id, context.app.keys, heads)
    return (
        [
            {
                "stream": one.stream,
                "entries": one.entries,
                "head": one.head,
                "erased": list(one.erased),
                "ended": one.ended,
            }
            for one in verified
        ],
        witnessed_lengths(heads),
        bool(known),
        restorations(heads),
    )


def _truncation(told: dict[str, int] | None, there: bool) -> list[str]:
    """Whether the index or control stream can have been cut."""
    if told is None:
        return []
    if not told:
        why = "the witness knows nothing of this tenant" if there else "there is no witness"
        return [f"truncation of index and control cannot be excluded: {why}"]
    return ["witnessed: " + ", ".join(f"{stream} up to entry {seq}" for stream, seq in sorted(told.items()))]


def restored_line(one: Restoration) -> str:
    """What a restore left of a stream, as a line for a terminal."""
    when = datetime.fromtimestamp(one.at_us / 1e6, UTC).isoformat(timespec="seconds")
    return f"restored at {when}: {one.gone} entries of {one.stream} after entry {one.kept} are gone"


def restored_document(one: Restoration) -> dict[str, Any]:
    """What a restore left of a stream, as JSON."""
    return {**one._asdict(), "gone": one.gone}


def _user() -> str:
    """The name of the user that runs this process."""
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError, ImportError):
        return f"uid:{os.getuid()}"


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

    return with_context(workspace, tenant, operation)


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


def _write_new(path: Path, raw: bytes) -> None:
    """Write a file atomically. Refuses to replace one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(raw)
        try:
            os.link(part, path)
        finally:
            part.unlink()
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        detail = f"`{path}` cannot be written: {(error.strerror or str(error)).lower()}"
        raise InvalidInput(Problem("", "unwritable", detail, "name another file")) from None


def _erased(stream: dict[str, Any]) -> str:
    return f"  erased: {', '.join(map(str, stream['erased']))}" if stream["erased"] else ""
