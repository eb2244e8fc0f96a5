"""Runs a command on a workspace: opens it, chooses the tenant, runs the operation, closes it.

Refuses a workspace with several tenants unless `--tenant` names one. Imports the runtime only when a command runs.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from contextos.cli.workspace_search import find_workspace
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import ContextOSError, Integrity, InvalidInput, NotFound, Problem, Unavailable
from contextos.files import NewFiles, read_private_file, read_regular_file, why_unwritten

if TYPE_CHECKING:
    from contextos.contracts.ports.storage import Store
    from contextos.deployment.deployment import Deployment
    from contextos.deployment.queries.run_view import RunView
    from contextos.workspace import App
    from contextos.workspace.settings import Settings

ReturnT = TypeVar("ReturnT")

MAX_FILE_BYTES: Final = 64 << 20
MAX_DRIVES: Final = 64
MAX_SHOWN_CHARS: Final = 300
PATIENCE_US: Final = 10_000_000
"""A command that drives a run waits for its next step if that is due within this time (10 s)."""

WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-w",
        envvar="CONTEXTOS_WORKSPACE",
        help="The workspace's directory. Default: the nearest one from the current directory upwards.",
    ),
]
TenantOption = Annotated[
    str, typer.Option("--tenant", help="The tenant. Default: the request's, or the workspace's only one.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, also for errors.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run id, or the id of the request that made the run.")
]


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The open workspace and the tenant of one command. The tenant is "" if the command is about all tenants."""

    app: App
    tenant_id: str

    @property
    def deployment(self) -> Deployment:
        return self.app.deployment

    @property
    def concerned(self) -> tuple[str, ...]:
        """The tenants whose streams the command may change."""
        return (self.tenant_id,) if self.tenant_id else self.app.tenants()

    @property
    def store(self) -> Store:
        return self.app.stores.tenant(self.tenant_id)

    async def run_id(self, named: str) -> str:
        """Return the id of the run `named`, which is a run id or the id of its request. Raises as `run_named`."""
        from contextos.deployment.queries.run_names import run_named

        return await run_named(self.store, named)

    async def drive_on(self, run_id: str) -> RunView:
        """Drive a run until it ends, waits for an answer, or is not due again within `PATIENCE_US`, at most
        `MAX_DRIVES` times. Return its view.
        """
        import asyncio

        for _ in range(MAX_DRIVES):
            advance = await self.deployment.advance(self.tenant_id, run_id)
            view = await self.deployment.view(self.tenant_id, run_id)
            left_us = (advance.wake_at_us or 0) - self.deployment.ports.clock.now_us()
            if view.ended or view.waiting or not advance.wake_at_us or left_us > PATIENCE_US:
                return view
            await asyncio.sleep(max(left_us, 1_000) / 1e6)
        return view


def with_context(
    workspace: Path | None, tenant: str | None, act: Callable[[CommandContext], Awaitable[ReturnT]]
) -> ReturnT:
    """Open the workspace, run `act` for one tenant (None: for no tenant of its own), and close the workspace.

    The witness is compared first, so that a cut journal is found before anything is done: exit code 3 then means that
    nothing was done. Afterwards the heads are published to the witness.

    Raises:
        ContextOSError: the workspace cannot be opened, its store has other policies in force than the settings name,
            or `act` raised it.
    """
    from contextos.workspace import open_app

    return _run(workspace, tenant, act, open_app)


def with_unchecked_context(
    workspace: Path | None,
    tenant: str | None,
    act: Callable[[CommandContext], Awaitable[ReturnT]],
    *,
    ask_witness: bool = True,
) -> ReturnT:
    """Do as `with_context`, whatever policies are in force: for the acts that change policies, or that repair a store.

    Raises:
        ContextOSError: the workspace cannot be opened, a journal is cut (with `ask_witness`), or `act` raised it.
    """
    from contextos.workspace import open_unchecked

    return _run(workspace, tenant, act, open_unchecked, ask_witness=ask_witness)


def with_read_context(
    workspace: Path | None,
    tenant: str | None,
    act: Callable[[CommandContext], Awaitable[ReturnT]],
    *,
    ask_witness: bool = True,
) -> ReturnT:
    """Run `act` on a store that is open for reading only: nothing is changed, and nothing is published.

    Raises:
        ContextOSError: the workspace cannot be opened, a journal is cut (with `ask_witness`), or `act` raised it.
    """
    from contextos.workspace import open_unchecked

    return _run(workspace, tenant, act, partial(open_unchecked, read_only=True), ask_witness=ask_witness, reads=True)


def with_authors_context(
    workspace: Path | None, tenant: str | None, act: Callable[[CommandContext], Awaitable[ReturnT]]
) -> ReturnT:
    """Do as `with_read_context`, also before the store is made: for questions about the tools and the people alone.

    Raises:
        ContextOSError: the workspace cannot be opened, or `act` raised it.
    """
    from contextos.workspace import open_for_authors

    return _run(workspace, tenant, act, open_for_authors, ask_witness=False, reads=True)


def _run(
    workspace: Path | None,
    tenant: str | None,
    act: Callable[[CommandContext], Awaitable[ReturnT]],
    open_with: Callable[[Settings], Awaitable[App]],
    *,
    ask_witness: bool = True,
    reads: bool = False,
) -> ReturnT:
    """Open the workspace with `open_with`, compare the witness with `ask_witness`, run `act`, and publish the heads to
    the witness unless `act` only `reads`.
    """
    import asyncio

    from contextos.workspace.settings import Settings

    async def run_in_workspace() -> ReturnT:
        app = await open_with(Settings.read(find_workspace(workspace)))
        try:
            tenant_id = only_tenant(app) if tenant == "" else await known_tenant(app, tenant) if tenant else ""
            context, publisher = CommandContext(app, tenant_id), app.witness_publisher
            if publisher and ask_witness:
                with _errors_as_warnings(Unavailable):
                    for concerned_id in context.concerned:
                        await publisher.check(concerned_id)
            result = await act(context)
            if publisher and not reads:
                with _errors_as_warnings(Unavailable, Integrity):
                    await publisher.publish(context.concerned)
            return result
        finally:
            app.close()

    return asyncio.run(run_in_workspace())


@contextmanager
def _errors_as_warnings(*errors: type[ContextOSError]) -> Iterator[None]:
    """Print these errors as warnings and continue: the operation is done, and the next command checks again."""
    try:
        yield
    except errors as error:
        typer.echo(f"warning: {error}", err=True)


def only_tenant(app: App) -> str:
    """Return the only tenant that the directory lists. Raises `InvalidInput` if it lists several, or none."""
    tenants = app.tenants()
    if len(tenants) != 1:
        names = ", ".join(f"`{name}`" for name in tenants[:8]) or "none"
        raise InvalidInput(
            Problem("", "tenant_required", f"the workspace has the tenants {names}", "name one with --tenant")
        )
    return tenants[0]


async def known_tenant(app: App, tenant: str) -> str:
    """Return `tenant` if the directory knows it or its control stream has an entry. Raises `NotFound` otherwise."""
    from contextos.contracts.facts import name_remedy
    from contextos.contracts.journal import CONTROL

    if not await app.deployment.ports.directory.knows_tenant(tenant) and not await app.stores.tenant(tenant).read(
        CONTROL, limit=1
    ):
        names = app.listed_tenants()
        remedy = name_remedy(tenant, names) if names else "check its name in the directory"
        raise NotFound(f"there is no tenant `{tenant[:64]}`, in the directory or in the store; {remedy}")
    return tenant


def usage_error(detail: str, remedy: str) -> InvalidInput:
    """Return the error for options that do not fit each other, or that lack something."""
    return InvalidInput(Problem("", "usage", detail, remedy))


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Return a context that adds the name of the file to the problems of an `InvalidInput` raised in it."""
    try:
        yield
    except InvalidInput as error:
        raise type(error)(*error.in_file(displayed(path)[:MAX_SHOWN_CHARS])) from None


def read_file(path: Path, *, private: bool = False) -> bytes:
    """Return the bytes of a regular file, or of stdin for `-`, at most 64 MiB.

    Raises:
        InvalidInput: the file cannot be read, or is larger.
        InvalidSettings: the file is `private`, and others can read it.
    """
    import sys

    try:
        if str(path) == "-":
            raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
            if len(raw) > MAX_FILE_BYTES:
                raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE_BYTES} bytes")
            return raw
        return read_private_file(path, MAX_FILE_BYTES, "") if private else read_regular_file(path, MAX_FILE_BYTES)
    except OSError as error:
        detail = f"`{displayed(path)[:MAX_SHOWN_CHARS]}` cannot be read: {(error.strerror or str(error)).lower()}"
        code = "too_large" if error.errno == errno.EFBIG else "unreadable"
        raise InvalidInput(Problem("", code, detail, "check the path; pipe into `-` what is not a file")) from None


def write_new_file(path: Path, text: str) -> None:
    """Write a text to a new file, whole or not at all. Raises `InvalidInput` if it exists or cannot be written."""
    write_new_files({path: text})


def write_new_files(texts: Mapping[Path, str]) -> None:
    """Write each text to a new file: all of the files, or none.

    Raises:
        InvalidInput: one of the files exists or cannot be written.
    """
    path = Path()
    try:
        with NewFiles() as files:
            for path, text in texts.items():
                files.write(path, text.encode())
            files.publish()
    except OSError as error:
        detail = f"`{displayed(path)[:MAX_SHOWN_CHARS]}` cannot be written: {why_unwritten(error)}"
        raise InvalidInput(Problem("", "unwritable", detail, "name another file with --out")) from None


def exit_code_of(view: RunView) -> int:
    """Return a command's exit code for a run: 0 completed, 1 ended in another way, 5 waiting, 4 held up."""
    if view.state == "completed":
        return 0
    if view.ended:
        return 1
    return 5 if view.waiting else ContextOSError.exit_code


def document_of(view: RunView) -> dict[str, Any]:
    """Return a run as the JSON object that `--json` prints."""
    return {
        "tenant_id": view.tenant_id,
        "run_id": view.run_id,
        "state": view.state,
        "waiting": view.waiting,
        "record": view.record,
        "exit_code": exit_code_of(view),
    }
