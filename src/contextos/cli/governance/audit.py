"""`replay`, `runs export`, `runs erase`: commands of auditors, on a store or on an export and its public key alone."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.acting import ActKeyOption, ByOption, ReasonOption, named_actor
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    about,
    read_file,
    usage_error,
    with_context,
    with_read_context,
)
from contextos.cli.terminal import print_result
from contextos.cli.workspace_search import find_workspace
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import ChainBroken, InvalidInput, InvalidSettings, Problem
from contextos.files import NewFiles, why_unwritten

if TYPE_CHECKING:
    from contextos.audit.exported import Export
    from contextos.contracts.ports.outside import Keys
    from contextos.trust.approvals.signers import Persons
    from contextos.trust.seal import KeyRing

TrustedKeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-key",
        metavar="[PURPOSE=]HEX",
        help="Trust this public key instead of the workspace's, for `export` or the purpose named. Repeat it.",
    ),
]

PersonOption = Annotated[
    list[str] | None,
    typer.Option(
        "--person",
        metavar="ID=HEX",
        help="Count signatures of this person by this public key alone, in an export. Repeat it.",
    ),
]


def replay_command(
    run: Annotated[str, typer.Argument(metavar="RUN|EXPORT", help="A run id, a request id, or an export file.")],
    trusted_key: TrustedKeyOption = None,
    person: PersonOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Derive a run again from its journal and compare.

    No external system is reached. An export with --trusted-key needs no workspace.
    """
    if run == "-" or os.path.isfile(run):
        import asyncio

        from contextos.audit.exported import replay_export

        export, persons = exported(Path(run), trusted_key or [], person or [], workspace, tenant)
        replays = asyncio.run(replay_export(export))
        proof, proof_text = proof_document(export, persons), proof_lines(export, persons)
    elif trusted_key or person:
        option = "--trusted-key" if trusted_key else "--person"
        raise usage_error(f"there is no export `{run[:200]}`", f"{option} is for a file")
    else:
        replays, proof, proof_text = with_read_context(workspace, tenant, partial(_replay_run, run)), {}, []
    documents = [
        {
            "run_id": replay.run_id,
            "equal": True,
            "status": replay.status,
            "record_hash": replay.record_hash,
            "compared": replay.compared,
            "erased": list(replay.missing),
        }
        for replay in replays
    ]
    lines = [
        f"{result.run_id} equal: {result.compared} entries, {result.status}, {result.record_hash}" for result in replays
    ]
    print_result({"replayed": documents} | proof, [*lines, *proof_text], as_json=as_json)
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
        from contextos.audit.exported import public_keys

        run_ids = [await context.run_id(run) for run in dict.fromkeys(runs)]
        exports = await signed_exports(context.deployment, context.tenant_id, run_ids)
        with NewFiles() as new:
            files = [(_file_name(out, number), export) for number, export in enumerate(exports, start=1)]
            for path, export in files:
                _write(new, path, export.raw)
            await record_export(context.deployment, context.tenant_id, exports, by=actor)
            new.publish()
        return files, public_keys(context.app.keys)

    if os.path.lexists(out):
        raise _already_exists(out)
    files, public = with_context(workspace, tenant, operation)
    documents = [{"file": str(path), "runs": list(export.runs), "bytes": len(export.raw)} for path, export in files]
    lines = [f"{path}: {len(export.runs)} runs, {len(export.raw)} bytes" for path, export in files]
    trusted = "".join(f" --trusted-key {purpose}={key}" for purpose, keys in public.items() for key in keys)
    for path, _ in files:
        lines += [f"next: contextos {command} {path}{trusted}" for command in ("verify", "replay")]
    print_result({"files": documents, "public_keys": public}, lines, as_json=as_json)
    return 0


def erase_command(
    run: RunArgument,
    seq: Annotated[
        int, typer.Argument(metavar="SEQ", min=1, help="The number of the entry, as `runs show --json` has it.")
    ],
    by: ByOption,
    key: ActKeyOption = None,
    reason: ReasonOption = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Erase the body of one entry of a run.

    The chain still verifies, and the erasure is on record.
    """
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> str:
        from contextos.deployment.operator import erase_entry

        run_id = await context.run_id(run)
        await erase_entry(context.deployment, context.tenant_id, run_id, seq, by=actor, reason=reason)
        return run_id

    run_id = with_context(workspace, tenant, operation)
    print_result({"run_id": run_id, "erased": seq}, [f"{run_id} entry {seq} is erased"], as_json=as_json)
    return 0


def _file_name(path: Path, number: int) -> Path:
    """Return the name of the `number`-th file of an export: `runs.jsonl`, `runs-2.jsonl`, ..."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


async def _replay_run(run: str, context: CommandContext) -> Any:
    from contextos.audit.replay import replay

    return [await replay(context.deployment, context.tenant_id, await context.run_id(run))]


def exported(
    file: Path, trusted: list[str], person: list[str], workspace: Path | None, tenant: str
) -> tuple[Export, Persons]:
    """Return the export in `file`, verified with the public keys in `trusted` or the keys of the workspace, and the
    keys of people in `person`. Raises as `read_export`, and `InvalidInput` for another tenant or a person who signed
    nothing.
    """
    from contextos.audit.exported import read_export

    raw, persons = read_file(file), _persons(person)

    def read(keys: Keys) -> Export:
        with about(file):
            try:
                export = read_export(raw, keys, persons=persons)
            except ChainBroken as broken:
                if broken.stream != "export":
                    raise
                raise ChainBroken(displayed(file), broken.seq, broken.detail) from None
            if stranger := next((person_id for person_id in persons if person_id not in export.signers), None):
                # A key that checks no signature is a mistake of the caller, and the output would not show it.
                detail = f"nobody with the id `{displayed(stranger[:80])}` signs in this export"
                raise InvalidInput(Problem("", "no_such_person", detail, f"name one of {', '.join(export.signers)}"))
            if tenant and export.tenant != tenant:
                detail = f"the export is of the tenant `{export.tenant}`"
                raise InvalidInput(Problem("", "other_tenant", detail, "name that tenant, or none"))
            return export

    async def operation(context: CommandContext) -> Export:
        return read(context.app.keys)

    if trusted:
        return read(_key_ring(trusted)), persons
    try:
        place = find_workspace(workspace)
    except InvalidSettings as error:
        remedy = "give the exporter's public key with --trusted-key, or name its workspace with -w DIR"
        raise InvalidSettings(*(replace(problem, pointer="", remedy=remedy) for problem in error.problems)) from None
    return with_read_context(place, None, operation), persons


def proof_document(export: Export, persons: Persons) -> dict[str, Any]:
    """Return the parts of an export that no checked signature proves, and the sources of people's keys, as JSON."""
    with_given_key = [signer for signer in export.signers if signer in persons]
    with_listed_key = [signer for signer in export.signers if signer not in persons]
    signers = {"keys_given": with_given_key, "keys_from_operator": with_listed_key}
    return {"unproved": list(export.unproved), "unsigned": list(export.unsigned), "signers": signers}


def proof_lines(export: Export, persons: Persons) -> list[str]:
    """Return the parts of an export that no checked signature proves, as lines of text."""
    lines = []
    if export.unproved:
        names = ", ".join(export.unproved)
        lines.append(f"not checked: the signatures of the keys for {names}; what they prove rests on the export's key")
        lines.append(f"give these keys with --trusted-key, as in `--trusted-key {export.unproved[0]}=HEX`")
    if signers := [displayed(signer) for signer in export.signers if signer not in persons]:
        lines.append(f"the operator states the keys of {', '.join(signers)}; give others with --person ID=HEX")
    return lines + [f"no key of a person signed {displayed(person_id)}" for person_id in export.unsigned]


def _persons(texts: list[str]) -> Persons:
    persons: dict[str, set[str]] = {}
    for text in texts:
        person, _, key = text.rpartition("=")
        if not person or not re.fullmatch("[0-9a-fA-F]{64}", key):
            detail = "a key of a person is their id, `=` and 64 hex digits"
            raise InvalidInput(Problem("", "not_a_key", detail, "write it like `user_1=HEX`"))
        persons.setdefault(person, set()).add(key.lower())
    return persons


def _key_ring(trusted: list[str]) -> KeyRing:
    from contextos.audit.exported import PROVING
    from contextos.trust.seal import KeyRing

    keys: dict[str, list[bytes]] = {}
    for text in trusted:
        purpose, _, key = text.rpartition("=")
        if (purpose or "export") not in ("export", *PROVING) or not re.fullmatch("[0-9a-fA-F]{64}", key):
            detail = "a trusted key is 64 hex digits, behind its purpose and `=` if it is not for exports"
            raise InvalidInput(Problem("", "not_a_key", detail, "take it from `contextos runs export`"))
        keys.setdefault(purpose or "export", []).append(bytes.fromhex(key))
    if "export" not in keys:
        detail = "no key for exports is given, so nothing can be verified"
        raise usage_error(detail, "add it with `--trusted-key HEX`")
    return KeyRing({}, keys)


def _already_exists(path: Path) -> InvalidInput:
    return InvalidInput(Problem("", "exists", f"`{path}` exists already", "name a new file"))


def _write(new: NewFiles, path: Path, raw: bytes) -> None:
    try:
        new.write(path, raw)
    except FileExistsError:
        raise _already_exists(path) from None
    except OSError as error:
        detail = f"`{path}` cannot be written: {why_unwritten(error)}"
        raise InvalidInput(Problem("", "unwritable", detail, "name another file")) from None
