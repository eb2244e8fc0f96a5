"""G56: what a rule judges, a person is shown, a binding covers, the record has and a function gets is one value.

The attacks: a default that is filled in behind the judgement, and a type that strips, lowers, rounds, converts or
normalises a text after it, over every way to make a tool. Either the value is changed before anybody looks at it, or
the tool is refused when it is defined.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import jsonschema_rs
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    IPvAnyAddress,
    Json,
    NaiveDatetime,
    PlainValidator,
    StringConstraints,
    WrapValidator,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

import contextos
from contextos.action.schema_profile import refuse_unfilled_defaults
from contextos.adapters.foreign.drafting import check_drafted, drafted_capability
from contextos.adapters.function.adapter import FunctionAdapter
from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.drafting import Stated, draft_adapter
from contextos.audit.replay import replay
from contextos.contracts.encoding.defaults import with_defaults
from contextos.contracts.encoding.jcs import canonical, same_json
from contextos.contracts.entries.reading import read_body
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.errors import InvalidArtifact, InvalidInput, InvalidTool
from contextos.frameworks.wrapping import govern
from contextos.packs.tools.exact import as_json
from contextos.testing import Person, in_memory
from tests.attacks.test_d39_untrusted_destinations import PEOPLE, gate_of
from tests.deployers import TENANT


class Money(BaseModel):
    amount: int = 500
    currency: str = "INR"


class Rate(BaseModel):
    model_config = ConfigDict(frozen=True)
    amount: int = 500


class Aliased(BaseModel):
    amount: int = Field(500, alias="amountMinor")


class Stripped(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)
    text: str


class Lowered(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def lower(cls, value: str) -> str:
        return value.lower()


class Rounded(BaseModel):
    text: str

    @model_validator(mode="after")
    def shorten(self) -> Rounded:
        self.text = self.text[:1]
        return self


class AfterInit(BaseModel):
    text: str

    def model_post_init(self, context: Any) -> None:
        self.text = self.text.strip()


class Made(BaseModel):
    text: str = Field(default_factory=lambda: uuid.uuid4().hex)


@dataclasses.dataclass
class Order:
    amount: int = 500


@dataclasses.dataclass
class Ordered:
    text: str

    def __post_init__(self) -> None:
        self.text = self.text.strip()


@dataclasses.dataclass(frozen=True)
class Fixed:
    amount: int = 500
    marks: tuple[int, ...] = ()


class Part(TypedDict):
    name: str
    amount: NotRequired[int]


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Card(BaseModel):
    kind: Literal["card"]
    limit: int = 9


class Cash(BaseModel):
    kind: Literal["cash"]
    limit: int = 1


class Train(BaseModel):
    kind: Literal["train"] = "train"
    limit: int = 9


class Plane(BaseModel):
    kind: Literal["plane"] = "plane"
    limit: int = 1


class Valued(BaseModel):
    model_config = ConfigDict(use_enum_values=True)
    colour: Colour = Colour.RED


ALONE = (Money, Rate, Order, Aliased, Part, Fixed, Valued)
"""Where a function takes one of these alone, Pydantic AI shows its members as the arguments."""


def stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def wrapped(value: Any, handler: Any) -> Any:
    return handler(value).strip()


ID = "123e4567-e89b-12d3-a456-426614174000"
REFUSED = object()
NO_DEFAULT = object()

KEPT: dict[str, tuple[Any, Any, dict[str, Any], Any]] = {
    "a default that is left out": (int, 500, {}, 500),
    "a default that is stated": (int, 500, {"x": 500}, 500),
    "another value than the default": (int, 500, {"x": 7}, 7),
    "a default of None": (int | None, None, {}, None),
    "a default of a text": (str, "main", {}, "main"),
    "a default of a list": (tuple[int, ...], (1, 2), {}, [1, 2]),
    "a default of an enumeration": (Colour, Colour.RED, {}, "red"),
    "a default of a number with a fraction": (float, 2.5, {}, 2.5),
    "a default of an instant": (datetime, datetime(2026, 5, 4, tzinfo=UTC), {}, "2026-05-04T00:00:00Z"),
    "a default of a day": (date, date(2026, 5, 4), {}, "2026-05-04"),
    "a default of an id": (uuid.UUID, uuid.UUID(ID), {}, ID),
    "a default that is a frozen model": (Rate, Rate(), {}, {"amount": 500}),
    "a day in a year with zeros": (date, NO_DEFAULT, {"x": "0100-05-04"}, "0100-05-04"),
    "an instant or a number": (datetime | int, NO_DEFAULT, {"x": 5}, 5),
    "a default inside a model": (Money, NO_DEFAULT, {"x": {"amount": 3}}, {"amount": 3, "currency": "INR"}),
    "every default inside a model": (Money, NO_DEFAULT, {"x": {}}, {"amount": 500, "currency": "INR"}),
    "a default inside a dataclass": (Order, NO_DEFAULT, {"x": {}}, {"amount": 500}),
    "a default under an alias": (Aliased, NO_DEFAULT, {"x": {}}, {"amountMinor": 500}),
    "defaults inside a list": (list[Order], NO_DEFAULT, {"x": [{}, {"amount": 2}]}, [{"amount": 500}, {"amount": 2}]),
    "defaults inside a map": (dict[str, Order], NO_DEFAULT, {"x": {"a": {}}}, {"a": {"amount": 500}}),
    "defaults inside an optional model": (Order | None, None, {"x": {}}, {"amount": 500}),
    "a default of the alternative that is meant": (
        Card | Cash,
        NO_DEFAULT,
        {"x": {"kind": "cash"}},
        {"kind": "cash", "limit": 1},
    ),
    "a default of the alternative that its discriminator names": (
        list[Annotated[Train | Plane, Field(discriminator="kind")]],
        NO_DEFAULT,
        {"x": [{"kind": "plane"}]},
        [{"kind": "plane", "limit": 1}],
    ),
    "a default that is a frozen dataclass": (Fixed, Fixed(), {}, {"amount": 500, "marks": []}),
    "an enumeration that is kept as its value": (Valued, NO_DEFAULT, {"x": {}}, {"colour": "red"}),
    "keys of an enumeration": (dict[Colour, int], NO_DEFAULT, {"x": {"red": 1}}, {"red": 1}),
    "an optional member without a default": (Part, NO_DEFAULT, {"x": {"name": "a"}}, {"name": "a"}),
    "a whole number for an integer": (int, NO_DEFAULT, {"x": 5.0}, 5),
    "an integer for a number": (float, NO_DEFAULT, {"x": 5}, 5),
    "minus zero": (float, NO_DEFAULT, {"x": -0.0}, 0),
    "a number in another notation": (float, NO_DEFAULT, {"x": 1e3}, 1000),
    "a text with blanks": (str, NO_DEFAULT, {"x": " evil "}, " evil "),
    "a literal": (Literal["a", 1], NO_DEFAULT, {"x": 1}, 1),
    "an enumeration of numbers": (Level, NO_DEFAULT, {"x": 3}, 3),
    "an instant": (datetime, NO_DEFAULT, {"x": "2026-05-04T09:00:00Z"}, "2026-05-04T09:00:00Z"),
    "a day": (date, NO_DEFAULT, {"x": "2026-05-04"}, "2026-05-04"),
    "an id": (uuid.UUID, NO_DEFAULT, {"x": ID}, ID),
    "a bounded number": (Annotated[int, Field(ge=0)], NO_DEFAULT, {"x": 2}, 2),
}
"""By what is tried: the type of the argument, its default, what an agent sends, and the value that everybody has."""

NOT_A_CALL: dict[str, tuple[Any, Any]] = {
    "a text for an integer": (int, "5"),
    "true for an integer": (int, True),
    "true for a number": (float, True),
    "one for a truth value": (bool, 1),
    "a fraction for an integer": (int, 5.5),
    "true for a literal one": (Literal[1], True),
    "an alternative that its discriminator does not name": (
        list[Annotated[Train | Plane, Field(discriminator="kind")]],
        [{"limit": 3}],
    ),
    "an instant with an offset of zero": (datetime, "2026-05-04T09:00:00+00:00"),
    "an instant with a fraction of zero": (datetime, "2026-05-04T09:00:00.000000Z"),
    "an instant with a short fraction": (datetime, "2026-05-04T09:00:00.5Z"),
    "an instant with seven digits": (datetime, "2026-05-04T09:00:00.1234567Z"),
    "an instant in small letters": (datetime, "2026-05-04t09:00:00z"),
    "seconds since 1970": (datetime, "1777885200"),
    "an instant of the year 0": (datetime, "0000-05-04T09:00:00Z"),
    "a day of the year 0": (date, "0000-05-04"),
    "an id in capitals": (uuid.UUID, ID.upper()),
    "an id as a URN": (uuid.UUID, f"urn:uuid:{ID}"),
    "an id without dashes": (uuid.UUID, ID.replace("-", "")),
}
"""By what is tried: a type, and another spelling of a value, which nobody is asked about and no function gets."""

CHANGING: dict[str, Any] = {
    "stripped": Annotated[str, StringConstraints(strip_whitespace=True)],
    "lowered": Annotated[str, StringConstraints(to_lower=True)],
    "raised": Annotated[str, StringConstraints(to_upper=True)],
    "a validator before": Annotated[str, BeforeValidator(stripped)],
    "a validator after": Annotated[str, AfterValidator(stripped)],
    "a validator around": Annotated[str, WrapValidator(wrapped)],
    "a validator instead": Annotated[str, PlainValidator(stripped)],
    "a model that strips": Stripped,
    "a validator of a field": Lowered,
    "a validator of a model": Rounded,
    "a method after the model is made": AfterInit,
    "a method after the dataclass is made": Ordered,
    "a default of a factory": Made,
    "inside a list": list[Lowered],
    "inside an alternative": int | Stripped,
    "inside a map": dict[str, Annotated[str, StringConstraints(to_lower=True)]],
    "a decimal": Decimal,
    "a path": Path,
    "a URL": HttpUrl,
    "an address": IPvAnyAddress,
    "a duration": timedelta,
    "bytes": bytes,
    "a set": set[str],
    "a frozen set": frozenset[int],
    "JSON in a text": Json[int],
    "keys that are numbers": dict[int, str],
    "keys that are lowered": dict[Annotated[str, StringConstraints(to_lower=True)], int],
    "a text or an instant": datetime | str,
    "a day or an instant": list[date | datetime | None],
    "a text or an id": uuid.UUID | str | None,
    "a literal of an enumeration": Literal[Colour.RED],
    "an instant without a zone": NaiveDatetime,
}


def signed(function: Callable[..., Any], kind: Any, default: Any) -> Any:
    """The function with an argument `x` of this type and default."""
    function.__annotations__ = {"x": kind, "return": str}
    if default is not NO_DEFAULT:
        function.__kwdefaults__ = {"x": default}
    return function


def by_decorator(kind: Any, default: Any, got: list[Any], **_: Any) -> Any:
    def pay(*, x: Any) -> str:
        """Pay."""
        got.append(x)
        return "paid"

    return contextos.write(risk="irreversible", idempotency="none")(signed(pay, kind, default))


def by_async(kind: Any, default: Any, got: list[Any], **_: Any) -> Any:
    async def pay(*, x: Any) -> str:
        """Pay."""
        got.append(x)
        return "paid"

    return contextos.write(risk="irreversible", idempotency="none")(signed(pay, kind, default))


def by_method(kind: Any, default: Any, got: list[Any], **_: Any) -> Any:
    def pay(self: Any, *, x: Any) -> str:
        """Pay."""
        self.got.append(x)
        return "paid"

    tool = contextos.write(risk="irreversible", idempotency="none")(signed(pay, kind, default))
    bank = type("Bank", (), {"pay": tool, "got": got})()
    return bank.pay


def plain(kind: Any, default: Any, got: list[Any]) -> Any:
    def pay(x: Any) -> str:
        """Pay.

        Args:
            x: What to pay.
        """
        got.append(x)
        return "paid"

    pay.__annotations__ = {"x": kind, "return": str}
    if default is not NO_DEFAULT:
        pay.__defaults__ = (default,)
    return pay


def by_pydantic_ai(kind: Any, default: Any, got: list[Any]) -> Any:
    framework = pytest.importorskip("pydantic_ai")
    return govern(framework.Tool(plain(kind, default, got)), risk="irreversible", idempotency="none")


def by_langchain(kind: Any, default: Any, got: list[Any]) -> Any:
    framework = pytest.importorskip("langchain_core.tools")
    return govern(framework.tool(plain(kind, default, got)), risk="irreversible", idempotency="none")


def by_openai_agents(kind: Any, default: Any, got: list[Any]) -> Any:
    framework = pytest.importorskip("agents")
    made = framework.function_tool(plain(kind, default, got), strict_mode=False)
    return govern(made, risk="irreversible", idempotency="none")


WAYS = [by_decorator, by_async, by_method, by_pydantic_ai, by_langchain, by_openai_agents]
OWN = WAYS[:3]


async def bodies_of(app: Any, run_id: str) -> list[tuple[str, Any]]:
    entries = await app.deployment.ports.stores.tenant(TENANT).read(run_id)
    return [(one.kind, read_body(one)) for one in entries]


def judged(tools: Any, args: dict[str, Any], *, deny: str = "", wants: str = "") -> dict[str, Any]:
    """Make one call that a person approves, and return its arguments as each place has them."""
    pack = contextos.pack(
        "bank",
        version="1.0.0",
        tenant=TENANT,
        tools=[tools if isinstance(tools, FunctionAdapter) else contextos.toolset("bank", [tools])],
        who=["deployer"],
        approver="approver",
        **({"deny": [{"when": deny, "because": "it is too much"}]} if deny else {}),
    )
    seen: dict[str, Any] = {}
    with in_memory(packs=[pack], directory=PEOPLE, lint=False) as app:
        gate = gate_of(app)
        answer = gate.call("bank.pay", args, call_id="c1")
        if isinstance(answer, Waiting):
            view = gate.view()
            app.call(Person("omar").answer, app, view)
            answer = gate.call("bank.pay", args, call_id="c1")
        seen["answer"] = answer
        bodies = app.call(bodies_of, app, gate.run_id)
        seen["planned"] = [body["steps"][0]["params"] for kind, body in bodies if kind == "plan.proposed"]
        seen["asked"] = [body["args"] for kind, body in bodies if kind == "approval.asked"]
        seen["sent"] = [body["envelope"]["args"] for kind, body in bodies if kind == "tool.dispatching"]
        gate.finish("approved" if seen["sent"] else "denied")
        app.call(replay, app.deployment, TENANT, gate.run_id)
    return seen


def by_every_way(cases: Iterable[str]) -> list[Any]:
    """Each case by one way in `make test`, and by the others in `make test-slow`."""
    return [
        pytest.param(
            case, way, id=f"{case}-{way.__name__}", marks=() if WAYS[at % len(WAYS)] is way else pytest.mark.slow
        )
        for at, case in enumerate(cases)
        for way in WAYS
    ]


@pytest.mark.parametrize(("case", "way"), by_every_way(KEPT))
def test_everybody_has_the_value_that_the_function_gets(case: str, way: Callable[..., Any]) -> None:
    kind, default, args, value = KEPT[case]
    expected = canonical({"x": value})
    if way is by_pydantic_ai and kind in ALONE:
        args, expected = args.get("x", {}), canonical(value)
    got: list[Any] = []
    seen = judged(way(kind, default, got), args)
    assert isinstance(seen["answer"], Done), seen["answer"]
    assert seen["answer"].error is None
    for place in ("planned", "asked", "sent"):
        assert [canonical(one) for one in seen[place]] == [expected], place
    assert [canonical(as_json(one)) for one in got] == [canonical(value)]
    assert not isinstance(got[0], bool)


@pytest.mark.parametrize(("case", "way"), by_every_way(NOT_A_CALL))
def test_another_spelling_of_a_value_is_refused_before_anybody_is_asked(case: str, way: Callable[..., Any]) -> None:
    kind, value = NOT_A_CALL[case]
    got: list[Any] = []
    seen = judged(way(kind, NO_DEFAULT, got), {"x": value})
    assert isinstance(seen["answer"], Refused)
    assert seen["answer"].reasons[0].code == "schema_mismatch"
    assert got == seen["asked"] == seen["sent"] == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("case", CHANGING)
def test_a_type_that_changes_values_is_refused_when_the_tool_is_defined(case: str, way: Callable[..., Any]) -> None:
    with pytest.raises(InvalidTool) as caught:
        way(CHANGING[case], NO_DEFAULT, [])
    problem = caught.value.problems[0]
    assert problem.code in ("changes_value", "no_json_form", "any_value")
    assert problem.remedy
    assert "x" in problem.pointer or "arguments" in problem.pointer


@pytest.mark.parametrize("way", OWN, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (int, "5"),
        (int, True),
        (bool, 1),
        (float, float("nan")),
        (str, 5),
        (int, 2**60),
        (Annotated[int, Field(le=5)], 9),
    ],
)
def test_a_default_that_is_not_of_its_type_is_refused(kind: Any, default: Any, way: Callable[..., Any]) -> None:
    with pytest.raises(InvalidTool) as caught:
        way(kind, default, [])
    assert caught.value.problems[0].code in ("wrong_default", "bad_default")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_rule_sees_the_default(way: Callable[..., Any]) -> None:
    got: list[Any] = []
    seen = judged(way(int, 500, got), {}, deny="default(args.x, 0) > 100")
    assert isinstance(seen["answer"], Refused), "it pays 500"
    assert seen["answer"].reasons[0].code == "policy_denied"
    assert got == []
    assert isinstance(judged(way(int, 50, got), {}, deny="default(args.x, 0) > 100")["answer"], Done)


def test_a_limit_counts_the_default() -> None:
    got: list[Any] = []
    auto = [{"tools": ["bank.pay"], "bounds": {"x": {"max": 100}}}]
    tools = contextos.toolset("bank", [by_decorator(int, 500, got)])
    pack = contextos.pack(
        "bank", version="1.0.0", tenant=TENANT, tools=[tools], who=["deployer"], approver="approver", auto_approve=auto
    )
    with in_memory(packs=[pack], directory=PEOPLE, lint=False) as app:
        answer = gate_of(app).call("bank.pay", {}, call_id="c1")
        assert isinstance(answer, Waiting), "500 is above what is made without a question"
        assert got == []


def test_the_same_call_with_and_without_its_default_is_one_operation() -> None:
    got: list[Any] = []
    auto = [{"tools": ["bank.pay"], "bounds": {"x": {"max": 1000}}}]
    tools = contextos.toolset("bank", [by_decorator(int, 500, got)])
    pack = contextos.pack(
        "bank", version="1.0.0", tenant=TENANT, tools=[tools], who=["deployer"], approver="approver", auto_approve=auto
    )
    with in_memory(packs=[pack], directory=PEOPLE, lint=False) as app:
        gate = gate_of(app)
        first = gate.call("bank.pay", {}, call_id="c1")
        again = gate.call("bank.pay", {"x": 500}, call_id="c2")
    assert isinstance(first, Done)
    assert isinstance(again, Done)
    assert again.replayed
    assert got == [500]


def test_a_default_that_nobody_filled_in_is_not_used_by_the_function() -> None:
    """What the check of the function itself finds, where the runtime forgot it."""
    got: list[Any] = []
    adapter = contextos.toolset("bank", [by_decorator(int, 500, got)])
    context = contextos.CallContext("t", "run_1", "tool_1", "ik_0000000000000001", not_after_us=0, timeout_ms=5000)
    reply = asyncio.run(adapter.call("pay", {}, context))
    assert reply.error is not None
    assert reply.error.code == "arguments_changed"
    assert got == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_type_that_lies_is_found_before_the_function_runs(way: Callable[..., Any]) -> None:
    class Sly(str):
        @classmethod
        def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
            from pydantic_core import core_schema

            return core_schema.str_schema()

    class Late(BaseModel):
        text: str

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            return value.strip() if name == "text" else value

    got: list[Any] = []
    args = {"text": " a "} if way is by_pydantic_ai else {"x": {"text": " a "}}
    seen = judged(way(Late, NO_DEFAULT, got), args)
    assert isinstance(seen["answer"], Done)
    assert seen["answer"].error is not None
    assert seen["answer"].error.code == "arguments_changed"
    assert got == []
    assert isinstance(judged(way(Sly, NO_DEFAULT, got), {"x": " a "})["answer"], Done)
    assert same_json(got, [" a "])


STATED = {
    "type": "object",
    "properties": {"account": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["account"],
    "additionalProperties": False,
}
HIDDEN = {**STATED, "properties": {"account": {"type": "string"}}}


class Account(BaseModel):
    account: str


def pay_500(account: str, amount: int = 500) -> str:
    """Pay."""
    raise AssertionError("it is never called")


def by_pydantic_ai_schema(schema: Any) -> Any:
    framework = pytest.importorskip("pydantic_ai")
    return framework.Tool.from_schema(pay_500, name="pay", description="Pay.", json_schema=schema)


def by_langchain_schema(schema: Any) -> Any:
    framework = pytest.importorskip("langchain_core.tools")
    return framework.StructuredTool.from_function(pay_500, name="pay", args_schema=schema)


def by_langchain_decorator(schema: Any) -> Any:
    return pytest.importorskip("langchain_core.tools").tool("pay", args_schema=schema)(pay_500)


def langchain_class(got: list[Any], **members: Any) -> Any:
    framework = pytest.importorskip("langchain_core.tools")

    class Pay(framework.BaseTool):  # type: ignore[misc, name-defined]
        name: str = "pay"
        description: str = "Pay."
        args_schema: Any = Account

        def _run(self, account: str) -> str:
            got.append(account)
            return "paid"

    return type("Paying", (Pay,), {"__module__": __name__, **members})()


def by_langchain_class(schema: Any) -> Any:
    def run(self: Any, account: str, amount: int = 500) -> str:
        raise AssertionError("it is never called")

    return langchain_class([], _run=run, args_schema=schema, __annotations__={"args_schema": Any})


def by_openai_agents_schema(schema: Any) -> Any:
    made = pytest.importorskip("agents").function_tool(pay_500, strict_mode=False)
    made.params_json_schema = schema if isinstance(schema, dict) else schema.model_json_schema()
    return made


@pytest.mark.parametrize(
    ("way", "schema"),
    [
        *((by_pydantic_ai_schema, one) for one in (STATED, HIDDEN)),
        *((by_langchain_schema, one) for one in (STATED, HIDDEN, Account)),
        *((by_langchain_decorator, one) for one in (STATED, HIDDEN, Account)),
        *((by_langchain_class, one) for one in (STATED, HIDDEN, Account)),
        *((by_openai_agents_schema, one) for one in (STATED, HIDDEN, Account)),
    ],
)
def test_a_default_of_the_function_that_its_schema_does_not_have_is_refused(
    way: Callable[..., Any], schema: Any
) -> None:
    with pytest.raises(InvalidTool) as caught:
        govern(way(schema), risk="irreversible", idempotency="none", returns=str)
    assert caught.value.problems[0].code == "unseen_parameter"
    assert "`amount`" in caught.value.problems[0].detail


@pytest.mark.parametrize("schema", [{**STATED, "required": ["account", "amount"]}, None])
def test_a_default_that_is_never_used_or_that_its_schema_has_is_taken(schema: Any) -> None:
    framework = pytest.importorskip("pydantic_ai")
    stated = {**STATED["properties"], "amount": {"type": "integer", "default": 7}}  # type: ignore[dict-item]
    got: list[Any] = []

    def pay(account: str, amount: int = 500) -> str:
        got.append((account, amount))
        return "paid"

    made = framework.Tool.from_schema(
        pay, name="pay", description="Pay.", json_schema=schema or {**STATED, "properties": stated}
    )
    tool = govern(made, risk="irreversible", idempotency="none")
    seen = judged(tool, {"account": "a", "amount": 5} if schema else {"account": "a"})
    assert seen["sent"] == [{"account": "a", "amount": got[0][1]}]
    assert got == [("a", 5 if schema else 7)]


@pytest.mark.parametrize("method", ["_parse_input", "_to_args_and_kwargs", "invoke", "ainvoke", "run", "arun"])
def test_a_langchain_tool_that_has_its_own_way_to_call_is_refused(method: str) -> None:
    with pytest.raises(InvalidTool) as caught:
        govern(langchain_class([], **{method: lambda *_, **__: None}), risk="irreversible", idempotency="none")
    assert caught.value.problems[0].code == "own_call"


def test_what_a_framework_makes_of_the_arguments_is_found_at_the_function() -> None:
    got: list[Any] = []
    tool = langchain_class(got)
    vars(tool)["_parse_input"] = lambda *_: {"account": "evil"}
    seen = judged(govern(tool, risk="irreversible", idempotency="none"), {"account": "a"})
    assert seen["sent"] == [{"account": "a"}]
    assert seen["answer"].error.code == "arguments_changed"
    assert got == []
    vars(tool).pop("_parse_input")
    judged(govern(tool, risk="irreversible", idempotency="none"), {"account": "a"})
    assert got == ["a"]


def an_object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


FIVE = {"type": "integer", "default": 5}
LIMIT = an_object(limit=FIVE)
NUMBER = {"type": "integer"}
CARD = an_object("kind", kind={"const": "card"}, limit=FIVE)
CASH = an_object("kind", kind={"const": "cash"}, limit=FIVE)
NEEDS_B = {"type": "object", "properties": {"b": NUMBER}, "required": ["b"], "additionalProperties": True}

UNFILLED: dict[str, dict[str, Any]] = {
    "in an alternative": an_object(x={"anyOf": [FIVE, {"type": "null"}]}),
    "by a condition": an_object(k=NUMBER) | {"if": {"required": ["k"]}, "then": {"properties": {"k": FIVE}}},
    "with another member": an_object(k=NUMBER) | {"dependentSchemas": {"k": {"properties": {"k": FIVE}}}},
    "by the pattern of a name": an_object() | {"patternProperties": {"^a": LIMIT}},
    "of what is left": an_object() | {"unevaluatedProperties": LIMIT},
    "of an element": an_object(x={"type": "array", "items": FIVE}),
    "of an element at a place": an_object(x={"type": "array", "prefixItems": [NUMBER, FIVE]}),
    "of one element of several": an_object(x={"type": "array", "items": LIMIT, "contains": LIMIT}),
    "of a whole that is shared": an_object(x={"$ref": "#/$defs/A"}, y={"anyOf": [{"$ref": "#/$defs/A"}]})
    | {"$defs": {"A": FIVE}},
    "of two objects that both fit": an_object(
        x={"anyOf": [an_object("x", x=NUMBER, limit=FIVE), LIMIT | {"additionalProperties": True}]}
    ),
    "of two objects with a kind that is left out": an_object(
        x={"oneOf": [CARD | {"required": []}, CASH | {"required": []}]}
    ),
    "of an object that the server takes for another": an_object(x={"anyOf": [an_object(a=FIVE), an_object(b=NUMBER)]}),
    "of two objects that can be lists": an_object(
        x={"oneOf": [one | {"type": ["object", "array"]} for one in (CARD, CASH)]}
    ),
    "of two lists": an_object(x={"anyOf": [{"type": "array", "items": CARD}, {"type": "array", "items": CASH}]}),
}

REQUIRED: dict[str, tuple[list[Any], Any]] = {
    "in an alternative": ([{}], {"x": 5}),
    "of an element": ([{}], {"x": [5]}),
    "of an element at a place": ([{}], {"x": [1, 5]}),
    "of a whole that is shared": ([{"x": 5}, {"y": 5}], {"x": 5, "y": 5}),
}
"""Of those, the ones whose value can be required of the caller where the schema is a server's."""

FILLED: dict[str, dict[str, Any]] = {
    "two kinds": an_object(x={"oneOf": [CARD, CASH]}),
    "a kind and another member": an_object(x={"anyOf": [an_object("a", a=NUMBER, n=FIVE), an_object("b", b=NUMBER)]}),
    "a member that the first does not take": an_object(x={"anyOf": [an_object("a", a=NUMBER, n=FIVE), NEEDS_B]}),
    "a member that the second does not take": an_object(x={"anyOf": [NEEDS_B, an_object("a", a=NUMBER, n=FIVE)]}),
    "two kinds of which one is always stated": an_object(x={"oneOf": [CARD, CASH | {"required": []}]}),
    "two kinds that are equal in Python": an_object(
        x={"oneOf": [an_object("kind", kind={"const": one}, limit=FIVE) for one in (1, True)]}
    ),
    "an object or nothing": an_object(x={"anyOf": [LIMIT, {"type": "null"}]}),
    "an object or a list": an_object(x={"anyOf": [LIMIT, {"type": "array", "items": LIMIT}]}),
    "alternatives without defaults": an_object(x={"anyOf": [an_object(a=NUMBER), an_object(b=NUMBER)]}),
    "a default beside alternatives": an_object(x={"anyOf": [NUMBER, {"type": "null"}], "default": None}),
    "of a shared whole": an_object(x={"$ref": "#/$defs/A"}) | {"$defs": {"A": FIVE}},
    "of what all say": an_object(x={"allOf": [FIVE, {"maximum": 9}]}),
    "of other members": an_object(x={"type": "object", "additionalProperties": LIMIT}),
}


def listed(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": "Pay.", "inputSchema": schema}


def drafted(*tools: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    connection = McpConnection(kind="mcp", command=("server",))
    made, rows = draft_adapter("bank", connection, tools, Stated(local=True))
    return {one["name"]: one["input_schema"] for one in made["definition"]["capabilities"]}, {
        row.tool: row.why for row in rows
    }


@pytest.mark.parametrize("case", UNFILLED)
def test_a_default_that_only_the_tool_would_fill_in_is_refused(case: str) -> None:
    with pytest.raises(InvalidArtifact) as caught:
        refuse_unfilled_defaults(UNFILLED[case], "pay")
    assert caught.value.problems[0].code == "bad_default"
    with pytest.raises(InvalidInput):
        check_drafted(
            drafted_capability(
                "pay",
                reads=False,
                leaves=False,
                input_schema=UNFILLED[case],
                output_schema=an_object(),
                description="Pay.",
            ),
            {},
        )
    schemas, why = drafted(listed("pay", UNFILLED[case]), listed("read", an_object()))
    if case not in REQUIRED:
        assert set(schemas) == {"read"}, "the tool is left out, and the server is not"
        assert why["pay"].startswith("left out: ")


@pytest.mark.parametrize("case", REQUIRED)
def test_what_only_a_server_would_fill_in_is_a_value_that_somebody_states(case: str) -> None:
    """A caller who leaves it out is refused, so that nothing is left for the server to fill in."""
    schemas, why = drafted(listed("pay", UNFILLED[case]))
    assert "so a value is required" in why["pay"]
    check = jsonschema_rs.Draft202012Validator(schemas["pay"])
    left_out, stated = REQUIRED[case]
    assert [check.is_valid(one) for one in (*left_out, stated)] == [False] * len(left_out) + [True]
    assert with_defaults(schemas["pay"], stated) == stated


@pytest.mark.parametrize("case", FILLED)
def test_a_default_that_is_filled_in_is_taken(case: str) -> None:
    assert set(drafted(listed("pay", FILLED[case]))[0]) == {"pay"}


@pytest.mark.parametrize("amount", [{"type": "integer", "default": "500"}, {"type": "integer", "default": None}])
def test_a_server_whose_default_is_wrong_gets_a_value_that_was_judged(amount: dict[str, Any]) -> None:
    inside = an_object("x", x=an_object(amount=amount))
    schemas, why = drafted(listed("pay", an_object(amount=amount)), listed("inside", inside))
    assert schemas["pay"]["required"] == ["amount"]
    assert schemas["inside"]["properties"]["x"]["required"] == ["amount"]
    assert "so a value is required" in why["pay"]
