"""Bindings: resolve a plan argument that names a source and a JSON Pointer to its value."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.contracts.envelopes.plan import Binding

_SOURCES: Final = ("request", "pack", "evidence", "step")


def binding_of(value: Any) -> Binding | None:
    """Return the binding that the plan argument `value` holds, or None if the argument is a literal.
    A binding is a JSON object with exactly the keys `from` and `pointer`.
    """
    if isinstance(value, dict) and value.keys() == {"from", "pointer"} and value["from"] in _SOURCES:
        source, pointer = value["from"], value["pointer"]
        return _binding(source, pointer) if isinstance(pointer, str) else Binding.model_validate(value)
    return None


@lru_cache(1024)
def _binding(source: str, pointer: str) -> Binding:
    return Binding.model_validate({"from": source, "pointer": pointer})


def resolve_binding(binding: Binding, sources: Mapping[str, Any]) -> Any:
    """Return the value that `binding` points to in `sources` (a JSON value for each source name), or `MISSING`."""
    return resolve_pointer(sources[binding.source], binding.pointer) if binding.source in sources else MISSING


def resolve_params(
    params: Mapping[str, Any], sources: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Replace each binding in the plan arguments `params` by its value in `sources`.

    Return (arguments, the origin of each argument by name, the names of the arguments that do not resolve yet).
    """
    args: dict[str, Any] = {}
    provenance: dict[str, str] = {}
    missing: list[str] = []
    for name in sorted(params):
        binding = binding_of(params[name])
        value = params[name] if binding is None else resolve_binding(binding, sources)
        if value is MISSING:
            missing.append(name)
            continue
        args[name] = value
        provenance[name] = "literal" if binding is None else f"{binding.source}:{binding.pointer}"
    return args, provenance, missing
