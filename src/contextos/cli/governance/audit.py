"""`replay`, `runs export`, `runs erase`: what auditors do, with our store or with nothing but an export and a key."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.acting import ActKeyOption, ByOption, named_actor
from contextos.cli.command_context import (
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
from contextos.errors import InvalidInput, Problem
from contextos.files import NewFiles

if TYPE_CHECKING:
    pass

TrustedKeyOption = Annotated[
    list[str] | None,
    typer.Option("--trusted-key", metavar="HEX", help="Trust this public key instead of the workspace's."),
]


def replay_command(
    run: Annotated[str, typer.Argument(metavar="RUN|EXPORT", help="A run id, a request id, or an export file.")],
    trusted_key: TrustedKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Derive a run again from its journal and compare.

    No external system is reached. An export with --trusted-key needs no workspace.
    """
    if run == "-" or os.path.isfile(run):
        import asyncio

        from contextos.audit.export import replay_export

        replayed = asyncio.run(replay_export(exported(Path(run), trusted_key or [], workspace, tenant)))
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


def export_command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run ids or request ids.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write. An existing file is not replaced.")
    ],
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
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
    seq: Annotated[
        int, typer.Argument(metavar="SEQ", min=1, help="The number of the entry, as `runs show --json` has it.")
    ],
    by: ByOption,
    key: ActKeyOption = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason; it is recorded and signed.")] = "",
    workspace: WorkspaceOption = None,
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


async def _replayed(run: str, context: CommandContext) -> Any:
    from contextos.audit.replay import replay

    return [await replay(context.deployment, context.tenant_id, await context.run_id(run))]


def exported(file: Path, trusted: list[str], workspace: Path | None, tenant: str) -> Any:
    """Return the verified export, by the given public keys or by the workspace's. Raises as `read_export`."""
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


def _ring(trusted: list[str]) -> Any:
    from contextos.trust.seal import KeyRing

    try:
        return KeyRing({}, {"export": [bytes.fromhex(one) for one in trusted]})
    except ValueError:
        problem = Problem("", "not_a_key", "a trusted key is 64 hex digits", "take it from `contextos runs export`")
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
