"""Makes the routes of the table of operations (`service.operations.table`).

A governed operation has two routes: its address, which takes the signatures of the caller, and its statement step,
which returns the statements to sign. Both make the same proposal, so the signed act is the act that is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from inspect import Parameter, Signature
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import ConfigDict

from contextos.contracts.journal import Entry
from contextos.contracts.model import Model
from contextos.server.access import RolesHere, RunName, readable_run, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.operate.work import Work, WorkHere
from contextos.service.acts import act_document, done_with, signer_elsewhere
from contextos.service.operations.operation import OF_RUN, Asked, Operation
from contextos.service.operations.table import OPERATION_TABLE
from contextos.service.views import ActDocument
from contextos.trust.identity.callers import Caller
from contextos.workspace import App

STATEMENT: Final = "/statement"
"""The end of the address of a statement step."""
_BODIES: Final = {operation.input: operation.signed_input() for operation in OPERATION_TABLE if operation.signs}
SIGNED_INPUTS: Final = {operation.name: _BODIES[operation.input] for operation in OPERATION_TABLE if operation.signs}
"""The models of the bodies of governed operations, with the proof, by the name of the operation."""
_Answer = Callable[[Asked, Any], Awaitable[Any]]


def operation_bodies() -> Iterator[type[Model]]:
    """Yield the models of bodies of operations, which FastAPI does not see in the signatures of routes."""
    yield from _BODIES
    yield from _BODIES.values()


def operation_routes() -> APIRouter:
    """Return the routes of all operations."""
    routes = APIRouter()
    for operation in OPERATION_TABLE:
        method, path = operation.address
        body, output = SIGNED_INPUTS.get(operation.name), operation.output
        is_bytes = not issubclass(output, Model)
        responses: dict[int | str, dict[str, Any]] = (
            {operation.status: {"content": {operation.media_type: {}}}} if is_bytes else {}
        )
        if body is not None:
            routes.add_api_route(
                path + STATEMENT,
                _endpoint(operation, json_body(operation.input), _statement_answer(operation)),
                methods=[method],
                tags=[operation.group],
                operation_id=f"{operation.name}.statement",
                summary=f"What the caller signs to {operation.signs}",
                description=f"Return what the caller signs to {operation.signs}. Nothing is changed.",
                response_model=ActDocument,
                openapi_extra=body_of(operation.input),
            )
        routes.add_api_route(
            path,
            _endpoint(operation, json_body(body), _act_answer(operation))
            if body is not None
            else _endpoint(operation, _query(operation.input), operation.run),
            methods=[method],
            tags=[operation.group],
            operation_id=operation.name,
            summary=operation.summary,
            description=operation.description,
            status_code=operation.status,
            response_model=None if is_bytes else output,
            response_class=Response if is_bytes else JSONResponse,
            response_model_exclude_unset=True,
            responses=responses,
            openapi_extra=body_of(body) if body is not None else None,
        )
    return routes


async def asked_by(operation: Operation, app: App, caller: Caller, roles: frozenset[str], name: str) -> Asked:
    """Return what a caller asks an operation about.

    Raises:
        HttpProblem: the caller may not see the run (404, before their role is checked), or lacks the role (403).
    """
    verified = None
    if operation.about is OF_RUN:
        run = await readable_run(app, caller, roles, name)
        name, verified = run.run_id, run.verified
    if operation.roles:
        require_role(roles, *operation.roles)

    async def open_run(other: str) -> tuple[str, Sequence[Entry] | None]:
        seen = await readable_run(app, caller, roles, other)
        return seen.run_id, seen.verified

    return Asked(app, caller.tenant_id, signer_elsewhere(caller.subject), name, verified, open_run)


def json_body(model: type[Model]) -> Any:
    """Return the annotation of a parameter that is the JSON body of the request."""
    return Annotated[model, json_of(model)]


def _query(model: type[Model]) -> Any:
    """Return the annotation of a parameter that is the query of the request. The model ignores unknown names:
    `check_query` refuses them, and allows an empty name, which FastAPI would hand to the model.
    """
    return Annotated[type(model.__name__, (model,), {"model_config": ConfigDict(extra="ignore")}), Query()]


def _statement_answer(operation: Operation) -> _Answer:
    async def state(asked: Asked, sent: Any) -> ActDocument:
        return await act_document(asked.app.deployment, asked.tenant_id, await operation.run(asked, sent))

    return state


def _act_answer(operation: Operation) -> _Answer:
    async def act(asked: Asked, sent: Any) -> Any:
        return await done_with(asked.app.deployment, await operation.run(asked, sent), sent.tokens)

    return act


def _endpoint(operation: Operation, input_annotation: Any, answer: _Answer) -> Any:
    """Return the function of a route. Its signature, which FastAPI reads, has the parameters of the operation."""

    async def endpoint(
        app: App, caller: Caller, roles: frozenset[str], sent: Any, name: str = "", work: Work | None = None
    ) -> Any:
        asked = await asked_by(operation, app, caller, roles, name)
        run = partial(answer, asked, sent)
        result = await (run() if work is None else work.do(caller.tenant_id, lambda _: run()))
        return Response(result, media_type=operation.media_type) if isinstance(result, bytes) else result

    parameters = {"app": AppHere, "caller": CallerHere, "roles": RolesHere, "sent": input_annotation}
    if operation.is_long:
        parameters["work"] = WorkHere
    if operation.about is OF_RUN:
        parameters["name"] = RunName
    elif (about := operation.about) is not None:
        path = Path(alias=about.name, description=about.description, max_length=about.max_chars)
        parameters["name"] = Annotated[str, path]
    endpoint.__signature__ = Signature(  # type: ignore[attr-defined]  # as `inspect` documents it
        [Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation) for name, annotation in parameters.items()]
    )
    return endpoint
