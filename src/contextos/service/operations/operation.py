"""`Operation`: one thing that a person or a program can ask of a deployment, through any of its interfaces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

from pydantic import Field, Strict, create_model

from contextos.contracts.acts import PackPin
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.display_escape import BIDI, displayed
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.identity import MAX_SIGNED_CHARS
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.journal import Entry
from contextos.contracts.model import MAX_COUNT, Model, Seq
from contextos.contracts.ports.outside import Engine
from contextos.deployment.acts.act import Actor, ActProposal
from contextos.deployment.acts.checks import MAX_REASON_CHARS
from contextos.deployment.deployment import Deployment
from contextos.errors import InvalidInput, Problem
from contextos.service.artifacts import PublishedArtifacts
from contextos.service.facts import Facts
from contextos.service.pages import MAX_PAGE_ITEMS
from contextos.trust.approvals.acts import AUDITOR_ROLE
from contextos.trust.approvals.assertion import OPERATOR_ROLE

ItemT = TypeVar("ItemT")
Effect = Literal["read", "write"]

_SHOWN: Final = rf"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f{BIDI}]*$"
ActReason = Annotated[str, Field(max_length=MAX_REASON_CHARS, json_schema_extra={"pattern": _SHOWN})]
"""Why somebody acts, for people: without characters that control a terminal or the reading direction."""
StatedAt = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""The time at which the caller states an act, in Unix microseconds. It counts for 15 minutes."""
ActToken = Annotated[str, Field(max_length=MAX_SIGNED_CHARS)]
"""The compact JWS of a statement by the caller's key."""


class Paged(Model):
    """The input of a list: at most `limit` items, from `cursor` on."""

    limit: Annotated[int, Strict(False), Field(ge=1, le=MAX_PAGE_ITEMS, description="The most items of the page.")] = 50
    cursor: Annotated[str, Field(max_length=512, description="The `cursor` of the page before.")] = ""


class Signed(Model):
    """The fields of an act with its proof: a compact JWS by the caller's key for each statement, in any order."""

    tokens: Seq[ActToken]


class Configured(Protocol):
    """Puts published artifacts in force, after a lint with everything that the deployment knows."""

    async def propose_pin(self, tenant_id: str, pin: PackPin, *, expected: int, by: Actor) -> ActProposal[None]: ...

    async def propose_policies(
        self, tenant_id: str, level_refs: Sequence[tuple[Level, str]], *, expected: int, by: Actor
    ) -> ActProposal[None]: ...

    async def of_tenant(self, tenant_id: str) -> Sequence[tuple[str, Problem]]: ...

    def require_settings_allow(self, level_refs: Iterable[tuple[Level, str]]) -> None: ...


RunOpener = Callable[[str], Awaitable[tuple[str, Sequence[Entry] | None]]]


class Opened(Protocol):
    """What operations use of an open deployment."""

    @property
    def deployment(self) -> Deployment: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def facts(self) -> Facts: ...

    @property
    def artifacts(self) -> PublishedArtifacts: ...

    @property
    def configuration(self) -> Configured: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """The context of an operation: the open deployment, the tenant, who asks, and the thing that its address names, if
    any. For an operation on a run, the thing is the id of a run that `by` may see. `verified` are the entries of the
    run if the same request read and verified it before; else None. `open_run` returns the id of another run that `by`
    may see, by its name, with its entries as in `verified`; it raises for every other name. None: no other run is open.
    """

    app: Opened
    tenant_id: str
    by: Actor
    name: str = ""
    verified: Sequence[Entry] | None = None
    open_run: RunOpener | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """The one thing that the address of an operation names: its name in the address, and a description."""

    name: str
    description: str
    max_chars: int | None = 200


OF_RUN: Final = Named("run", "A run id, or the id of the request that made the run.")
"""A run that the caller may see."""


READER_ROLES: Final = (AUDITOR_ROLE, OPERATOR_ROLE)
"""The roles whose holders see every run of their tenant; everybody else sees their own."""


class Nothing(Model):
    """Nothing more is stated."""


OperationFunction = Callable[..., Awaitable[Any]]
"""(`Asked`, input) -> the answer, or the `ActProposal` of a governed operation."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked.

    `name` is `<group>.<verb>`, and `address` its method and path under `/v1`. The caller holds one of `roles`; without
    roles it is an operation on a run, for each caller who may see the run. `run` takes an `Asked` and the input, and
    returns the answer. For a governed operation, `run` returns the `ActProposal` of an act whose result is the answer,
    and `signs` says what is signed. `status` is the HTTP status of a success, and `about` the thing that the path
    names. `is_long`: its duration grows with the size of what it is about. `exit_code` returns the exit
    code of a command that prints an answer. `media_type` is the type of an answer in bytes.
    """

    name: str
    address: tuple[str, str]
    roles: tuple[str, ...]
    input: type[Model]
    output: type[Model] | type[bytes]
    run: OperationFunction
    signs: str = ""
    status: int = 200
    about: Named | None = None
    is_long: bool = False
    media_type: str = ""
    exit_code: Callable[[Any], int] = lambda _: 0

    def __post_init__(self) -> None:
        if not self.roles and self.about is not OF_RUN:
            raise TypeError(f"{self.name} does not say who may ask it")

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]

    @property
    def description(self) -> str:
        """Return what the operation does: the docstring of `run`."""
        assert self.run.__doc__, f"{self.name} says what it does"
        return self.run.__doc__

    @property
    def summary(self) -> str:
        """Return the first sentence of the description, without its full stop."""
        return " ".join(self.description.split()).partition(". ")[0].removesuffix(".")

    @property
    def effect(self) -> Effect:
        return "write" if self.signs else "read"

    @property
    def is_paged(self) -> bool:
        return issubclass(self.input, Paged)

    def signed_input(self) -> type[Model]:
        """Return the model of the input with its proof, for an act that was signed elsewhere."""
        return create_model(
            f"Signed{self.input.__name__}", __base__=(self.input, Signed), __doc__=f"{getdoc(self.input)}\n\n{_PROOF}"
        )


def field_value(model: type[Model], field: str, text: str) -> Any:
    """Return the value of a field of an input that a person wrote as a text: the text, or the JSON in it if the field
    takes another value. A field that the input lacks keeps its text, which the model refuses by name.

    Raises:
        InvalidInput: the text is not a JSON value (`no_json`).
    """
    schema = model.model_json_schema()["properties"].get(field, {"type": "string"})
    if {kind.get("type") for kind in schema.get("anyOf", [schema])} <= {"string", "null"}:
        return text
    try:
        return loads(text)
    except InvalidInput as error:
        detail = f"`{displayed(text)[:80]}` is not a JSON value: {error.problems[0].detail}"
        raise InvalidInput(Problem(f"/{field}", "no_json", detail, "write a number, or a text in quotes")) from None


_PROOF: Final = "`tokens` are the caller's signatures: a compact JWS for each statement, in any order."


ListName = tuple[str | int | None, ...]
"""The identity of a list: its tenant, its name, and every other value that its pages have in common."""


def page_of(items: Sequence[ItemT], of: ListName, limit: int, cursor: str) -> tuple[Sequence[ItemT], str | None]:
    """Return a page of `items` behind a cursor, and the cursor of the next page.

    Raises:
        InvalidInput: the cursor is not one of the list `of`, or is one of an earlier version of it.
    """
    start = opened_number(of, cursor)
    end = start + limit
    return items[start:end], sealed_cursor(of, str(end)) if end < len(items) else None


def sealed_cursor(of: ListName, at: str | None) -> str | None:
    """Return the cursor of a list behind the item `at`; None behind the last."""
    return None if at is None else f"{at}.{content_address([*of, at])[7:39]}"


def opened_cursor(of: ListName, cursor: str) -> str:
    """Return the item that a cursor of this list names; "" for the empty cursor.

    Raises:
        InvalidInput: it is a cursor of another tenant or list, or not a cursor.
    """
    item = cursor.rpartition(".")[0]
    if cursor and (not cursor.isascii() or sealed_cursor(of, item) != cursor):
        raise _unknown_cursor()
    return item


def opened_number(of: ListName, cursor: str) -> int:
    """Return the place in a list that a cursor names; 0 for the empty cursor. Raises as `opened_cursor`."""
    item = opened_cursor(of, cursor) or "0"
    # A cursor has no secret: a caller who knows how it is made can put any text into it.
    if not item.isascii() or not item.isdigit() or int(item) > MAX_COUNT:
        raise _unknown_cursor()
    return int(item)


def _unknown_cursor() -> InvalidInput:
    detail = "the cursor is of no list of this tenant, or the list has changed since"
    return InvalidInput(Problem("/cursor", "unknown_cursor", detail, "begin without one"))
