"""`toolset` and `tools_of`: make the adapter that a runtime calls from tools.

The id of a tool in packs and policies is `<toolset>.<function>`, for example `deploy.rollback`.
Refuses two tools with the same name.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from contextos.adapters.function.adapter import FunctionAdapter
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.errors import InvalidTool, Problem
from contextos.packs.tools.declared import Tool
from contextos.packs.tools.schemas import refuse_tool

_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def toolset(
    name: str, tools: Iterable[Tool[Any, Any]], *, egress: Collection[str] = (), version: str = "1.0.0"
) -> FunctionAdapter:
    """Return an adapter with the id `name` that has these tools.

    `egress` lists the endpoints (`host` or `host:port`) that the tools reach; with one, calls leave the machine.

    Raises:
        InvalidTool: two tools have the same name, one is not a tool or is a method without its instance, or `name` is
            not a valid id.
    """
    by_name: dict[str, Tool[Any, Any]] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            label = getattr(tool, "__name__", type(tool).__name__)
            refuse_tool(str(label), "no_tool", (), "it is not a tool", "decorate it with `contextos.read` or `write`")
        if tool.name in by_name:
            refuse_tool(tool.name, "duplicate", (), f"`{name}` has two tools of this name", "rename one with `name=`")
        if tool.signature.takes_self and not inspect.ismethod(tool.function):
            remedy = "give the tools of an instance: `contextos.tools_of(instance)`"
            refuse_tool(tool.name, "no_instance", (), "it is a method without its instance", remedy)
        by_name[tool.name] = tool
    fields = {
        "adapter_id": name,
        "type": "function",
        "version": version,
        "external": bool(egress),
        "egress": list(egress),
        "capabilities": [tool.definition.to_json() for tool in by_name.values()],
    }
    try:
        definition = AdapterDefinition.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = "/".join(map(str, first["loc"]))
        detail = f"the toolset `{str(name)[:80]}` is invalid: {first['msg'][:200]}"
        raise InvalidTool(Problem(f"/{place}", "bad_toolset", detail, "correct it")) from None
    lookups = {tool.name: lookup for tool in by_name.values() if (lookup := tool.governed_lookup()) is not None}
    return FunctionAdapter(definition, {tool.name: tool.governed() for tool in by_name.values()}, lookups)


def tools_of(instance: object, *, name: str = "", egress: Collection[str] = ()) -> FunctionAdapter:
    """Return an adapter of all methods of `instance` that are tools. Its id is the class name in snake case, or `name`.

    Raises:
        InvalidTool: as `toolset`; or the class has no tools.
    """
    kind = type(instance)
    names = [
        attribute
        for attribute in dict.fromkeys(key for base in reversed(kind.__mro__) for key in vars(base))
        if isinstance(inspect.getattr_static(kind, attribute), Tool)
    ]
    adapter_id = name or _WORD.sub("_", kind.__name__).lower()
    if not names:
        remedy = "decorate its methods with `contextos.read` or `write`"
        refuse_tool(adapter_id, "no_tools", (), f"`{kind.__name__}` has no tools", remedy)
    return toolset(adapter_id, [getattr(instance, attribute) for attribute in names], egress=egress)


def grouped(tools: Iterable[Tool[Any, Any]]) -> tuple[FunctionAdapter, ...]:
    """Return one adapter for each module that defines some of the tools. Its id is the last part of the module's name.

    Raises:
        InvalidTool: as `toolset`.
    """
    groups: dict[str, list[Tool[Any, Any]]] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            label = getattr(tool, "__name__", type(tool).__name__)
            refuse_tool(str(label), "no_tool", (), "it is not a tool", "decorate it with `contextos.read` or `write`")
        groups.setdefault(_module_name(tool), []).append(tool)
    return tuple(toolset(name, group) for name, group in groups.items())


def _module_name(tool: Tool[Any, Any]) -> str:
    """Return the module that defines a tool; a script has the name of its file."""
    module = tool.function.__module__
    file = getattr(sys.modules.get(module), "__file__", None) if module == "__main__" else None
    return Path(file).stem if file else module.rpartition(".")[2].strip("_")
