"""Take the parameters of an intent from the sources that the catalog declares: request context, message, facts.

Nothing is guessed and no model is asked. The sources are tried in the declared order, and the first that has a value
counts. A message is read only by patterns that take linear time. A value from a message has the integrity `asserted`,
whatever the message says about itself.
Source: docs/adr/0065-an-intent-declares-its-parameters.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from contextos.contracts.encoding.jcs import MAX_INT
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.encoding.safe_patterns import safe_pattern
from contextos.contracts.entries.derived import TakenParameters
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.plan import IntentParameter, ParameterSource, TakenParameter
from contextos.contracts.envelopes.verdicts import Failure

MAX_PLACES: Final = 16
"""The most matches of one pattern in a message; a message with more matches has no usable value."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,15}")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class ParameterValues:
    """The parameters that were taken, the parameters that only a fact of the graph can still give (`later`), and the
    faults of the others, by name.
    """

    taken: tuple[TakenParameter, ...]
    later: tuple[IntentParameter, ...]
    faults: Mapping[str, Failure]

    def to_json(self) -> dict[str, Any]:
        """Return the body of the journal entry `parameters.taken`."""
        return TakenParameters(parameters=self.taken, missing=tuple(self.faults)).to_json()

    @property
    def failure(self) -> Failure | None:
        """Return the failure that names the parameters without a value, and how to give it; None if all have one."""
        if not self.faults:
            return None
        detail = "; ".join(fault.detail for fault in self.faults.values())
        return Failure(code="parameter_missing", detail=detail, facts=tuple(self.faults))


def take_parameters(
    declared: Sequence[IntentParameter],
    request_fields: Mapping[str, Any],
    facts: Mapping[str, EvidenceItem] | None = None,
) -> ParameterValues:
    """Take each declared parameter from the first of its sources that has a value.

    Without `facts`, which are the named evidence of the graph, a parameter whose next source is a fact is left for
    later. A value of another type, and a message with several values, end the search: no later source is asked.
    """
    taken, later, faults = list[TakenParameter](), list[IntentParameter](), dict[str, Failure]()
    for parameter in declared:
        for source in parameter.sources:
            if source.evidence is not None and facts is None:
                later.append(parameter)
                break
            result = _take_from_source(parameter, source, request_fields, facts or {})
            if isinstance(result, str):
                faults[parameter.name] = _missing_failure(parameter, result)
                break
            if result is not None:
                taken.append(result)
                break
        else:
            faults[parameter.name] = _missing_failure(parameter, f"nothing says what `{parameter.name}` is")
    return ParameterValues(tuple(taken), tuple(later), faults)


@lru_cache(1024)
def _pointer_of(name: str) -> str:
    """Return the JSON Pointer of a member of the request's context."""
    return pointer(("input", "context", name))


def _missing_failure(parameter: IntentParameter, reason: str) -> Failure:
    """Return the failure of a parameter without a value, with the pointer of the first request member for it."""
    places = [_pointer_of(source.context) for source in parameter.sources if source.context is not None]
    places += ["/input/message" for source in parameter.sources if source.message is not None]
    detail = f"{reason}; {_give_remedy(parameter)}"
    return Failure(code="parameter_missing", detail=detail, facts=(parameter.name,), pointer=next(iter(places), ""))


def _take_from_source(
    parameter: IntentParameter,
    source: ParameterSource,
    request_fields: Mapping[str, Any],
    facts: Mapping[str, EvidenceItem],
) -> TakenParameter | str | None:
    """Return the parameter taken from a source, why the value of the source cannot be used, or None if it has none."""
    body = request_fields["input"]
    if source.context is not None:
        context = body.get("context", {})
        if source.context not in context:
            return None
        return _check_value(parameter, context[source.context], "context", _pointer_of(source.context), "asserted")
    if source.message is not None:
        values = _message_values(source.message, body["message"])
        if len(values) > 1:
            return f"the message has several values of `{parameter.name}`"
        value = _parse_value(parameter.type, values[0]) if values else None
        if values and value is None:
            return f"`{parameter.name}` in the message is not of the type `{parameter.type}`"
        return _check_value(parameter, value, "message", "/input/message", "asserted") if values else None
    item = facts.get(source.evidence or "")
    if item is None or item.value is None:
        return None
    return _check_value(parameter, item.value, "evidence", item.evidence_ref, item.integrity)


def _check_value(
    parameter: IntentParameter, value: Any, origin: Any, place: str, integrity: Any
) -> TakenParameter | str:
    if not _TYPE_CHECKS[parameter.type](value):
        return f"`{parameter.name}` at `{place}` is not of the type `{parameter.type}`"
    return TakenParameter(name=parameter.name, value=value, origin=origin, place=place, integrity=integrity)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -MAX_INT <= value <= MAX_INT


_TYPE_CHECKS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str) and bool(value),
    "integer": _is_integer,
    "number": lambda value: _is_integer(value) or isinstance(value, float),
    "boolean": lambda value: isinstance(value, bool),
}


def _message_values(pattern: str, message: str) -> list[str]:
    """Return the different texts that a pattern finds in a message, at most two: two mean that no value is taken."""
    compiled = safe_pattern(pattern)
    if compiled is None:
        return []
    try:
        matches = list(islice(compiled.finditer(message), MAX_PLACES + 1))
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8
        return []
    texts = [match.group(1 if compiled.groups else 0) for match in matches]
    values = list(dict.fromkeys(text for text in texts if text))
    return values[:2] if len(matches) <= MAX_PLACES else ["", " "]


def _parse_value(kind: str, text: str) -> Any:
    """Return the value of the parameter type `kind` that a text states, or None if it states none."""
    if kind == "string":
        return text
    if kind == "boolean":
        return {"true": True, "false": False}.get(text)
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if kind == "number" and _DECIMAL.fullmatch(text) else None


def _give_remedy(parameter: IntentParameter) -> str:
    ways = [f"send `input.context.{source.context}`" for source in parameter.sources if source.context is not None]
    if any(source.message is not None for source in parameter.sources):
        ways.append("write it once in the message")
    ways += [f"record the fact `{source.evidence}`" for source in parameter.sources if source.evidence is not None]
    suffix = f" ({parameter.description})" if parameter.description else ""
    return f"{' or '.join(ways)}{suffix}"
