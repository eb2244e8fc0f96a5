"""`govern` makes a governed tool from a framework's tool object. A call runs the object's own validation and function.

The schema of the arguments is the framework's, closed and bounded as `contextos.packs.tools` does it. A tool with a
property that would be lost silently is refused, such as a function that takes the framework's run context.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from contextos.adapters.function.adapter import USES, BusinessError
from contextos.contracts.encoding.defaults import with_defaults
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.evidence import IntegrityLevel
from contextos.packs.tools.declared import Tool, provenance_of, tool_of
from contextos.packs.tools.exact import refuse_inexact
from contextos.packs.tools.schemas import ARGUMENT_BOUNDS, closed_schema, refuse_tool
from contextos.packs.tools.signatures import Argument, Key, ToolSignature, adapted, read_return

StatedRisk = Literal["read", "reversible", "irreversible"]
StatedStrategy = Literal["keyed", "none"]

UNKNOWN: Final = object()
"""The value for the return type of a function that states none."""

DEFAULT_TIMEOUT_S: Final = 10

_ANY: Final = TypeAdapter(Any)

_FRAMEWORKS: Final = (
    ("pydantic_ai", "Tool", "contextos.frameworks.pydantic_ai", "read_pydantic_ai_tool"),
    ("langchain_core.tools", "BaseTool", "contextos.frameworks.langgraph", "read_langchain_tool"),
    ("agents", "FunctionTool", "contextos.frameworks.openai_agents", "read_openai_agents_tool"),
)
"""The module and class of a framework's tool, and the module and function here that read it."""


@dataclass(frozen=True, slots=True)
class ForeignTool:
    """A framework's tool: its texts and schema for a model, the type that it returns, and its call with JSON arguments.

    `function` is the function that finally runs, and `types` are the types with which the tool validates its arguments.
    The digest of the code covers both. `asks`: the tool wants a person's approval. `timeout_s` is its own limit in
    seconds, or None. `failures` are the exceptions by which it reports an error; after one in a write nobody knows
    whether the write happened.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    returns: Any
    call: Callable[[dict[str, Any]], Awaitable[Any]]
    function: Callable[..., Any]
    types: Mapping[str, Any] = field(default_factory=dict)
    asks: bool = False
    timeout_s: float | None = None
    failures: tuple[type[Exception], ...] = ()


def govern(
    tool: Any,
    *,
    risk: StatedRisk | None = None,
    idempotency: StatedStrategy | None = None,
    key: str = "",
    returns: Any = UNKNOWN,
    name: str = "",
    produces: str | Collection[str] = (),
    timeout_s: int | None = None,
    cost_cents: float = 0,
    scopes: Collection[str] = (),
    integrity: IntegrityLevel | None = None,
    destinations: Collection[str] | None = None,
) -> Tool[Any, Any]:
    """Return a governed tool made from a framework's tool object, for a `contextos.toolset`.

    `risk` is `read`, or for a write whether its effect can be undone. A write states its `idempotency`: `keyed` (its
    argument named `key` receives the idempotency key, and no model sees it) or `none`. `returns` is the type that the
    function returns, if it has no hint. `timeout_s` is by default the limit of the tool object, or else 10 s. The other
    parameters are as in `contextos.read`.

    Raises:
        InvalidTool: nothing safe can be derived from the tool; the error says what to write.
    """
    foreign = _read_tool(tool)
    label = name or foreign.name
    if risk not in get_args(StatedRisk):
        remedy = 'write `risk="read"`, or `risk="reversible"` or `risk="irreversible"` for a write'
        refuse_tool(label, "no_risk", (), "it does not say what it can change", remedy)
    _check_idempotency(label, risk, idempotency, key)
    if foreign.asks and risk == "read":
        remedy = "remove its approval, and let the pack say who is asked; or state the risk of a write"
        refuse_tool(label, "asks", (), "it is a read and asks for approval", remedy)
    signature = _signature(foreign, label, key, foreign.returns if returns is UNKNOWN else returns)
    for argument, kind in foreign.types.items():
        refuse_inexact(adapted(kind, label, argument), label, (argument,))
    is_read = risk == "read"
    fields = {
        "kind": "read" if is_read else "write",
        "risk_level": "read" if is_read else f"write_{risk}",
        "approval_mode": "read_only" if is_read else "destructive",
        "idempotency": {"strategy": idempotency or "none"},
        "timeout_s": _timeout_s(label, foreign.timeout_s, timeout_s),
        "cost_cents": cost_cents,
        "produces": [produces] if isinstance(produces, str) else list(produces),
        "required_scopes": list(scopes),
        **provenance_of(label, integrity, destinations),
    }

    async def call(**arguments: Any) -> Any:
        try:
            # A governed call comes with its defaults. A call by the program itself lacks them.
            return await foreign.call(with_defaults(signature.input_schema, arguments))
        except foreign.failures as error:
            if is_read:
                raise BusinessError("tool_failed", str(error)) from None
            raise

    call.__module__ = __name__
    call.__dict__[USES] = (foreign.function, *foreign.types.values())
    return tool_of(call, label, foreign.description, signature, fields)


def refuse_lost(name: str, settings: Iterable[tuple[Any, str, str]]) -> None:
    """Refuse a tool with a setting that a governed tool would lose. `settings`: (whether it has it, name, remedy).

    Raises:
        InvalidTool: for the first of `settings` that the tool has.
    """
    for is_set, setting, remedy in settings:
        if is_set:
            detail = f"it has {setting}, which only a tool in an agent's own run has"
            refuse_tool(name, "needs_agent", (), detail, remedy)


def invalid_arguments(error: ValidationError) -> BusinessError:
    """Return the error for a call whose arguments the tool's own model does not accept. The function has not run."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return BusinessError("invalid_arguments", f"{pointer(first['loc'])}: {first['msg']}")


def _read_tool(tool: Any) -> ForeignTool:
    """Read a tool by its framework, which the program has imported. Raises `InvalidTool` for an unknown framework."""
    for module, kind, home, reader in _FRAMEWORKS:
        if isinstance(tool, getattr(sys.modules.get(module), kind, ())):
            foreign: ForeignTool = getattr(importlib.import_module(home), reader)(tool)
            return foreign
    remedy = "give a tool object of a supported framework, or decorate the function with `contextos.read` or `write`"
    refuse_tool(type(tool).__name__, "no_tool", (), "it is not a tool of a framework that is known here", remedy)


def _check_idempotency(name: str, risk: Any, idempotency: Any, key: str) -> None:
    if risk == "read":
        if idempotency is not None or key:
            refuse_tool(name, "key_of_a_read", (), "a read has no idempotency", "remove `idempotency` and `key`")
        return
    if idempotency not in get_args(StatedStrategy):
        remedy = 'write `idempotency="keyed"` and `key=` the argument that takes the key, or `idempotency="none"`'
        refuse_tool(name, "no_idempotency", (), "a write says what can be done after a lost reply", remedy)
    if (idempotency == "keyed") is not bool(key):
        remedy = 'write `idempotency="keyed"` together with `key=` the name of its argument that takes the key'
        refuse_tool(name, "no_key", (), "`keyed` and the argument for the key belong together", remedy)


def _timeout_s(name: str, own_s: float | None, given_s: int | None) -> Any:
    if own_s is None:
        return DEFAULT_TIMEOUT_S if given_s is None else given_s
    if given_s not in (None, own_s):
        refuse_tool(
            name, "two_timeouts", (), f"its own timeout is {own_s:g} s", "leave out `timeout_s`, or remove its own"
        )
    return int(own_s) if own_s == int(own_s) else own_s


def _signature(foreign: ForeignTool, name: str, key: str, returns: Any) -> ToolSignature:
    schema = closed_schema(foreign.input_schema, ARGUMENT_BOUNDS, tool=name, at=("arguments",))
    if schema.get("type") != "object" or schema["additionalProperties"] is not False:
        refuse_tool(name, "open_object", ("arguments",), "its arguments are open", "name each argument")
    properties = dict(schema.get("properties", {}))
    if key and properties.pop(key, {}).get("type") != "string":
        refuse_tool(name, "no_key", (key,), f"it has no argument `{key[:80]}` that is a text", "name one that is")
    if returns is UNKNOWN or returns is Any:
        remedy = "write `returns=` the type that it returns, such as `returns=str`"
        refuse_tool(name, "no_return_type", ("return",), "the type that it returns is not known", remedy)
    return_type, output_schema, wrapped = read_return({"return": returns}, name)
    required = schema.get("required", [])
    arguments = {argument: Argument(_ANY, properties[argument], argument in required) for argument in properties}
    return ToolSignature(arguments, {key: Key} if key else {}, return_type, output_schema, wrapped, takes_self=False)
