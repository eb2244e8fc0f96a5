"""The context of a command: open the workspace, choose the tenant, run the operation, close.

Refuses a workspace with several tenants unless `--tenant` names one. Imports the runtime only when a command runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from contextos.errors import ContextOSError, Integrity, InvalidInput, NotFound, Problem, Unavailable

if TYPE_CHECKING:
    from contextos.app import App
    from contextos.contracts.ports.storage import Store
    from contextos.operations.deployment import Deployment
    from contextos.queries.run_view import RunView

ReturnT = TypeVar("ReturnT")

MAX_FILE_BYTES: Final = 64 << 20
MAX_DRIVES: Final = 64
PATIENCE_US: Final = 10_000_000
"""A command that woke a run also drives it on after a pause that is shorter than this."""

WorkspaceOption = Annotated[
    Path,
    typer.Option(
        "--workspace", "-w", envvar="CONTEXTOS_WORKSPACE", help="The workspace's directory.", show_default=".contextos"
    ),
]
TenantOption = Annotated[
    str, typer.Option("--tenant", help="The tenant. Default: the request's, or the workspace's only one.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, also for errors.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run id, or the id of the request that made the run.")
]

WORKSPACE: Final = Path(".contextos")


@dataclass(frozen=True, slots=True)
class CommandContext:
    """An open deployment and the tenant of a command ("" where the command concerns all tenants)."""

    app: App
    tenant_id: str

    @property
    def deployment(self) -> Deployment:
        return self.app.deployment

    @property
    def store(self) -> Store:
        return self.app.stores.tenant(self.tenant_id)

    async def run_id(self, named: str) -> str:
        """The id of the run that has this id, or that was made by the request with this id. Raises `NotFound`."""
        if not named.startswith("run_"):
            from contextos.contracts.documents.runs import REQUESTS

            claim = await REQUESTS.one(self.store, named)
            if claim is None:
                raise NotFound(
                    f"there is no run or request `{named[:64]}` in this tenant; list them with `contextos runs`"
                )
            return claim.body.run_id
        return named

    async def drive_on(self, run_id: str) -> RunView:
        """Drive a run until it ends, waits for a person, or is suspended for more than `PATIENCE_US`."""
        import asyncio

        for _ in range(MAX_DRIVES):
            advance = await self.deployment.advance(self.tenant_id, run_id)
            view = await self.deployment.view(self.tenant_id, run_id)
            left_us = (advance.wake_at_us or 0) - self.deployment.ports.clock.now_us()
            if view.ended or view.waiting or not advance.wake_at_us or left_us > PATIENCE_US:
                return view
            await asyncio.sleep(max(left_us, 1_000) / 1e6)
        return view


def with_context(workspace: Path, tenant: str | None, act: Callable[[CommandContext], Awaitable[ReturnT]]) -> ReturnT:
    """Open the workspace, run `operation` for one tenant (None: for no tenant of its own), and close the workspace.

    Raises:
        ContextOSError: the workspace cannot be opened, or `operation` raised it.
    """
    import asyncio

    from contextos.app import open_app
    from contextos.settings import Settings

    async def inside() -> ReturnT:
        settings = Settings.read(workspace)
        tenant_id = only_tenant(workspace / settings.directory) if tenant == "" else tenant or ""
        app = await open_app(settings)
        try:
            concerned = [tenant_id] if tenant_id else app.deployment.tenants()
            if app.witness_publisher:
                # A cut journal is found before the operation begins, so that exit code 3 means that nothing was done.
                with _warning(Unavailable):
                    for one in concerned:
                        await app.witness_publisher.check(one)
            done = await act(CommandContext(app, tenant_id))
            if app.witness_publisher:
                with _warning(Unavailable, Integrity):
                    await app.witness_publisher.publish(concerned)
            return done
        finally:
            app.close()

    return asyncio.run(inside())


def with_read_context(workspace: Path, tenant: str, act: Callable[[CommandContext], Awaitable[ReturnT]]) -> ReturnT:
    """As `with_context`, without publishing the workspace's packs and without checking the witness first.

    Raises:
        ContextOSError: the workspace cannot be opened, or `operation` raised it.
    """
    import asyncio

    from contextos.app import open_unpublished
    from contextos.settings import Settings

    async def inside() -> ReturnT:
        settings = Settings.read(workspace)
        tenant_id = tenant or only_tenant(workspace / settings.directory)
        app = await open_unpublished(settings)
        try:
            done = await act(CommandContext(app, tenant_id))
            if app.witness_publisher:
                with _warning(Unavailable, Integrity):
                    await app.witness_publisher.publish([tenant_id])
            return done
        finally:
            app.close()

    return asyncio.run(inside())


@contextmanager
def _warning(*errors: type[ContextOSError]) -> Iterator[None]:
    """Print these errors as warnings and continue: the operation is done, and the next command checks again."""
    try:
        yield
    except errors as error:
        typer.echo(f"warning: {error}", err=True)


def only_tenant(directory: Path) -> str:
    """The only tenant that the directory file names. Raises `InvalidInput` where there are several, or none."""
    from contextos.contracts.encoding.codec import loads

    raw = read_file(directory)
    with about(directory):
        known = loads(raw, max_bytes=MAX_FILE_BYTES)
    tenants = sorted(known) if isinstance(known, dict) else []
    if len(tenants) != 1:
        listed = ", ".join(f"`{name}`" for name in tenants[:8]) or "none"
        raise InvalidInput(
            Problem("", "tenant_required", f"the workspace has the tenants {listed}", "name one with --tenant")
        )
    return str(tenants[0])


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Add the name of the file to the problems of a refused input."""
    try:
        yield
    except InvalidInput as error:
        told = [Problem(one.pointer, one.code, f"`{path}`: {one.detail}", one.remedy) for one in error.problems]
        raise type(error)(*told) from None


def read_file(path: Path) -> bytes:
    """The bytes of a file, or of stdin for `-`, at most 64 MiB. Raises `InvalidInput`."""
    import sys

    try:
        if str(path) == "-":
            raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with path.open("rb") as file:
                raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        detail = f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}"
        raise InvalidInput(Problem("", "unreadable", detail, "check the path")) from None
    if len(raw) > MAX_FILE_BYTES:
        raise InvalidInput(
            Problem("", "too_large", f"`{path}` is larger than {MAX_FILE_BYTES} bytes", "give a smaller file")
        )
    return raw


def exit_code_of(view: RunView) -> int:
    """0 decided, 1 refused, 5 waiting for a person or an engine, 4 held up by a dependency."""
    if view.state == "completed":
        return 0
    if view.ended:
        return 1
    return 5 if view.waiting else ContextOSError.exit_code


def document_of(view: RunView) -> dict[str, Any]:
    """A run as `--json` shows it."""
    return {
        "tenant_id": view.tenant_id,
        "run_id": view.run_id,
        "state": view.state,
        "waiting": view.waiting,
        "record": view.record,
        "exit_code": exit_code_of(view),
    }
