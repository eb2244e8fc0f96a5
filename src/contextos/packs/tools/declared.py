"""`read` and `write`: decorators that make a `Tool` of a function or method, which can still be called as before.

The arguments of a governed call are checked against the schema by the runtime, converted to the annotated types here,
and the returned value is written as JSON again. A value that does not convert is refused before the function runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, Literal, Never, ParamSpec, TypeVar, get_args

import orjson
from pydantic import ValidationError

from contextos.action.registry import Registry
from contextos.adapters.foreign.replies import withheld_answer
from contextos.adapters.function.adapter import BusinessError, Function
from contextos.contracts.encoding.codec import problems_of
from contextos.contracts.encoding.defaults import with_defaults
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.evidence import IntegrityLevel
from contextos.contracts.envelopes.tool import (
    AdapterDefinition,
    AdapterReply,
    CallContext,
    CapabilityDefinition,
    Idempotency,
)
from contextos.errors import InvalidArtifact, InvalidTool, MalformedJson
from contextos.packs.tools.exact import refuse_changed
from contextos.packs.tools.schemas import refuse_tool
from contextos.packs.tools.signatures import RESULT, Key, ToolSignature, read_signature, resolved_hints
from contextos.trust.redact import scan_unsafe

Risk = Literal["reversible", "irreversible"]
Strategy = Literal["keyed", "lookup", "none"]

MAX_DESCRIPTION_CHARS: Final = 2_000

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class Tool(Generic[Parameters, Returned]):
    """A function that a runtime can govern. Call it to call the function itself, without the runtime.

    `definition` is what its adapter declares about it, `function` the plain function, and `lookup` the function that
    finds out what an earlier call did.
    """

    def __init__(
        self,
        function: Callable[Parameters, Returned],
        definition: CapabilityDefinition,
        signature: ToolSignature,
        lookup: Function | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function, self.definition, self.signature, self.lookup = function, definition, signature, lookup

    @property
    def name(self) -> str:
        """Return the name of the capability."""
        return self.definition.name

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object | None, owner: type | None = None) -> Tool[..., Returned]:
        """Return the tool of one instance, as attribute access does with a method."""
        if instance is None or not self.signature.takes_self or inspect.ismethod(self.function):
            return self
        lookup = None if self.lookup is None else self.lookup.__get__(instance)
        return Tool(self.function.__get__(instance), self.definition, self.signature, lookup)

    def governed(self) -> Function:
        """Return the function that an adapter calls, with the JSON arguments and the `CallContext`."""
        function: Function = self.function
        signature = self.signature

        def answer(returned: Any) -> dict[str, Any] | AdapterReply:
            """Return the value as JSON. The function has run, so a wrong type is not a reason to call it again."""
            reason, place = f"it returned a `{type(returned).__name__}` that does not fit its return type", ""
            # The validators of its type can raise anything.
            with suppress(Exception):
                try:
                    return output_of(signature, returned)
                except MalformedJson as error:
                    reason, place = error.problems[0].detail, error.problems[0].pointer
            return withheld_answer(reason, place, self.definition)

        def called_with(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
            return {**_convert_arguments(signature, args), **_inject_values(signature.dependencies, context)}

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call_async(args: Mapping[str, Any], context: CallContext) -> dict[str, Any] | AdapterReply:
                return answer(await function(**called_with(args, context)))

            return call_async

        @functools.wraps(function)
        def call(args: Mapping[str, Any], context: CallContext) -> dict[str, Any] | AdapterReply:
            return answer(function(**called_with(args, context)))

        return call

    def governed_lookup(self) -> Function | None:
        """Return the function by which an adapter finds out what the call with a key did; None if the tool has none."""
        lookup, signature = self.lookup, self.signature
        if lookup is None:
            return None
        hints = {name: hint for name, hint in resolved_hints(lookup, self.name).items() if name != "return"}

        if inspect.iscoroutinefunction(lookup):

            @functools.wraps(lookup)
            async def look_up_async(key: str, context: CallContext) -> dict[str, Any] | None:
                outcome = await lookup(**_inject_values(hints, context, key))
                return None if outcome is None else output_of(signature, outcome)

            return look_up_async

        @functools.wraps(lookup)
        def look_up(key: str, context: CallContext) -> dict[str, Any] | None:
            outcome = lookup(**_inject_values(hints, context, key))
            return None if outcome is None else output_of(signature, outcome)

        return look_up


def read(
    *bare: Never,
    produces: str | Collection[str] = (),
    name: str = "",
    timeout_s: int = 10,
    cost_cents: float = 0,
    scopes: Collection[str] = (),
    integrity: IntegrityLevel | None = None,
    destinations: Collection[str] | None = None,
    volatile: Mapping[str, float] | None = None,
) -> Callable[[Callable[Parameters, Returned]], Tool[Parameters, Returned]]:
    """Declare a function that changes nothing outside as a tool.

    `produces` names the evidence that its answer is. `timeout_s` (seconds) and `cost_cents` (US cents) bound one call,
    and `scopes` are what the caller needs. `name` replaces the function's name. `integrity` says whether its answer is
    `trusted`, or content that anybody could have written, such as an e-mail or a web page: if only such content names
    the destination of a call, a person is asked first. None counts as `untrusted`, and lint asks for it. `destinations`
    are the arguments that carry something out, such as a URL; None: the function has none. `volatile` names the numbers
    of its answer that change by themselves (`{"age_s": 60}`), with the difference up to which an approval still counts.

    Raises:
        InvalidTool: nothing safe can be derived from the function; says what to write.
    """

    _refuse_bare("read", bare)

    def declare(function: Callable[Parameters, Returned]) -> Tool[Parameters, Returned]:
        base = {"kind": "read", "risk_level": "read", "approval_mode": "read_only", "idempotency": {"strategy": "none"}}
        base |= provenance_of(name or getattr(function, "__name__", "function"), integrity, destinations)
        if volatile:
            base["volatile"] = {
                place if place.startswith("/") else f"/{place}": limit for place, limit in volatile.items()
            }
        return _make_tool(function, name, None, base, produces, timeout_s, cost_cents, scopes)

    return declare


def write(
    *bare: Never,
    risk: Risk | None = None,
    idempotency: Strategy | Idempotency | None = None,
    lookup: Function | None = None,
    produces: str | Collection[str] = (),
    name: str = "",
    timeout_s: int = 10,
    cost_cents: float = 0,
    scopes: Collection[str] = (),
    integrity: IntegrityLevel | None = None,
    destinations: Collection[str] | None = None,
) -> Callable[[Callable[Parameters, Returned]], Tool[Parameters, Returned]]:
    """Declare a function that changes something outside as a tool. A person is asked unless a pack says otherwise.

    `risk` says whether the effect can be undone. `idempotency` says what can be done after a lost reply: `keyed` (the
    function passes its `Key` on, so sending again is safe), `lookup` (`lookup` finds out), or `none` (a person finds
    out); an `Idempotency` also says by which arguments a denied call is recognised. `destinations` are the arguments
    that say where something goes, such as a recipient or a path; None: all arguments. An argument of pydantic's type
    `SecretStr` is secret: only the function gets it. The other parameters are those of `read`.

    Raises:
        InvalidTool: as `read`; or `risk` or `idempotency` is missing, or does not fit the function.
    """

    _refuse_bare("write", bare)

    def declare(function: Callable[Parameters, Returned]) -> Tool[Parameters, Returned]:
        label = name or getattr(function, "__name__", "function")
        if risk not in get_args(Risk):
            remedy = 'write `risk="reversible"` or `risk="irreversible"`'
            refuse_tool(label, "no_risk", (), "a write says whether its effect can be undone", remedy)
        if idempotency not in get_args(Strategy) and not isinstance(idempotency, Idempotency):
            remedy = 'write `idempotency="keyed"`, `"lookup"` or `"none"`'
            refuse_tool(label, "no_idempotency", (), "a write says what can be done after a lost reply", remedy)
        policy = idempotency.to_json() if isinstance(idempotency, Idempotency) else {"strategy": idempotency}
        fields = {"kind": "write", "risk_level": f"write_{risk}", "approval_mode": "destructive", "idempotency": policy}
        fields |= provenance_of(label, integrity, destinations)
        return _make_tool(function, name, lookup, fields, produces, timeout_s, cost_cents, scopes)

    return declare


def _refuse_bare(decorator: str, functions: Collection[Any]) -> None:
    for function in functions:
        label = getattr(function, "__name__", type(function).__name__)
        detail = f"`@contextos.{decorator}` needs brackets, and takes its settings by name"
        settings = 'risk="irreversible", idempotency="none"' if decorator == "write" else 'integrity="trusted"'
        refuse_tool(label, "bare_decorator", (), detail, f"write `@contextos.{decorator}({settings})`")


def output_of(signature: ToolSignature, returned: Any) -> dict[str, Any]:
    """Return what a function returned as the JSON object that the runtime checks against the output schema.

    Raises:
        MalformedJson: the value has the annotated type, but has no JSON form.
        Exception: the value does not have the annotated type, or code of the type raised.
    """
    value = signature.returned.validate_python(returned, strict=True)
    output = orjson.loads(canonical(signature.returned.dump_python(value, mode="json", warnings="error")))
    if not signature.wrapped:
        assert isinstance(output, dict), "the schema of the output is an object"
        return output
    return {RESULT: output} if signature.output_schema["properties"] else {}


def _convert_arguments(signature: ToolSignature, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in their annotated types. A failure is a refusal: the function has not run.

    The runtime filled in the defaults before it judged the call. A default that is missing here would be used unseen.
    """
    values = {}
    for name, value in args.items():
        argument = signature.arguments.get(name)
        if argument is None:
            raise BusinessError("invalid_arguments", f"there is no argument `{name[:80]}`")
        try:
            values[name] = argument.adapter.validate_json(orjson.dumps(value), strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise BusinessError("invalid_arguments", f"the argument `{name}` is invalid: {first['msg']}") from None
    refuse_changed(args, with_defaults(signature.input_schema, values))
    return values


def _inject_values(dependencies: Mapping[str, Any], context: CallContext, key: str | None = None) -> dict[str, Any]:
    key_value = context.idempotency_key if key is None else key
    return {name: context if kind is CallContext else Key(key_value or "") for name, kind in dependencies.items()}


def provenance_of(name: str, integrity: str | None, destinations: Collection[str] | None) -> dict[str, Any]:
    """Return the fields of a definition about integrity and destinations. Raises `InvalidTool` if one is not valid."""
    if integrity is not None and integrity not in get_args(IntegrityLevel):
        remedy = 'write `integrity="trusted"` or `"untrusted"`'
        refuse_tool(name, "no_integrity", (), f"`{str(integrity)[:40]}` is not an integrity", remedy)
    fields: dict[str, Any] = {} if integrity is None else {"output_integrity": integrity}
    return fields | ({} if destinations is None else {"destinations": list(destinations)})


def _make_tool(
    function: Function,
    name: str,
    lookup: Function | None,
    fields: dict[str, Any],
    produces: str | Collection[str],
    timeout_s: int,
    cost_cents: float,
    scopes: Collection[str],
) -> Tool[Any, Any]:
    label = name or getattr(function, "__name__", type(function).__name__)
    if (
        not inspect.isfunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        remedy = "decorate a plain `def` or `async def`, nearest to the function"
        refuse_tool(label, "no_function", (), "it is not a plain function or method", remedy)
    signature = read_signature(function, label)
    _check_dependencies(label, signature, fields)
    _check_lookup(label, function, lookup, fields["idempotency"]["strategy"])
    secrets = [name for name, argument in signature.arguments.items() if argument.secret]
    settings = {
        **({"secrets": secrets} if secrets else {}),
        "timeout_s": timeout_s,
        "cost_cents": cost_cents,
        "produces": [produces] if isinstance(produces, str) else list(produces),
        "required_scopes": list(scopes),
    }
    return tool_of(function, label, inspect.getdoc(function) or "", signature, {**settings, **fields}, lookup)


def tool_of(
    function: Function,
    name: str,
    description: str,
    signature: ToolSignature,
    told: Mapping[str, Any],
    lookup: Function | None = None,
) -> Tool[Any, Any]:
    """Return the tool of a function whose signature is known. `told` are the other fields of its definition.

    Its description is the first paragraph of `description`, on one line.

    Raises:
        InvalidTool: a field is invalid, or the description is missing or unsafe.
    """
    base = {
        "name": name,
        "description": _first_paragraph(description, name),
        "input_schema": signature.input_schema,
        "output_schema": signature.output_schema,
    }
    try:
        definition = CapabilityDefinition.model_validate({**base, **told})
        adapter = AdapterDefinition(adapter_id="tool", type="function", version="1", capabilities=(definition,))
        Registry().register((adapter,))
    except ValidationError as error:
        [first, *_] = problems_of(error, {**base, **told}, CapabilityDefinition)
        place = first.pointer.removeprefix("/").replace("/", ".") or "it"
        detail, remedy = f"`{place}` is invalid: {first.detail}", f"correct it: {first.remedy}"
        refuse_tool(name, "misfit", (place,), detail, remedy)
    except InvalidArtifact as error:
        raise InvalidTool(*error.problems) from None
    return Tool(function, definition, signature, lookup)


def _first_paragraph(text: str, name: str) -> str:
    paragraph = text.strip().partition("\n\n")[0]
    if not paragraph:
        remedy = "say in its first sentence what it does"
        refuse_tool(name, "no_docstring", (), "it has no docstring, so no model knows what it is for", remedy)
    if unsafe := scan_unsafe(paragraph, declared_text=True):
        refuse_tool(name, "unsafe_text", (), f"its docstring has {unsafe[0].detail}", "remove it from the docstring")
    if len(paragraph) > MAX_DESCRIPTION_CHARS:
        refuse_tool(
            name, "too_long", (), f"the first paragraph is above {MAX_DESCRIPTION_CHARS} characters", "shorten it"
        )
    return " ".join(paragraph.split())


def _check_dependencies(name: str, signature: ToolSignature, fields: Mapping[str, Any]) -> None:
    takes_key = any(kind in (Key, CallContext) for kind in signature.dependencies.values())
    if fields["kind"] == "read" and Key in signature.dependencies.values():
        refuse_tool(name, "key_of_a_read", (), "a read has no idempotency key", "remove the parameter, or use `write`")
    if fields["idempotency"]["strategy"] == "keyed" and not takes_key:
        remedy = 'take `key: contextos.Key` and pass it on, or declare `idempotency="none"`'
        refuse_tool(name, "no_key", (), "it is `keyed` and does not take its key", remedy)


def _check_lookup(name: str, function: Function, lookup: Function | None, strategy: str) -> None:
    if (lookup is None) is (strategy == "lookup"):
        remedy = 'give `lookup=` a function, and declare `idempotency="lookup"`'
        refuse_tool(name, "no_lookup", (), "`lookup` and its function belong together", remedy)
    if lookup is None:
        return
    if not inspect.isfunction(lookup):
        refuse_tool(name, "no_function", ("lookup",), "its lookup is not a plain function", "give a plain function")
    hints = resolved_hints(lookup, name)
    parameters = [param for param in inspect.signature(lookup).parameters if param != "self"]
    if any(hints.get(param) not in (Key, CallContext) for param in parameters) or Key not in hints.values():
        remedy = "take `key: contextos.Key`, and at most a `contextos.CallContext` beside it"
        refuse_tool(name, "lookup_arguments", ("lookup",), "its lookup is asked with the key alone", remedy)
    if hints.get("return") != (resolved_hints(function, name)["return"] | None):
        remedy = "return the type of the tool, or None where the call did nothing"
        refuse_tool(name, "lookup_return", ("lookup",), "its lookup returns something else", remedy)
