"""`SourceCode`: the `Code` port over the source files of this process, each read once.

If the settings name an adapter, the loader read its files, and its digest covers them all. An adapter that the
embedding application made as an object has no list of files. Its digest covers the modules of its class, of the
functions and adapters in its attributes, of the classes of its methods, and of the function that a framework's tool
calls in the end. Other files that the code imports are read again at each question (`packages`). So are the modules of
values that were given to a function: in its closure, its arguments or the attributes of its object.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, MethodWrapperType
from typing import Any, Final, get_args

from contextos.adapters.function.adapter import USES
from contextos.adapters.function.imports import Imports, read_imports
from contextos.adapters.function.loading import LoadedAdapters
from contextos.adapters.function.packages import PackageFiles
from contextos.adapters.function.sources import PACKAGE_PREFIX, tree_digest
from contextos.contracts.encoding.jcs import content_address, digest
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition
from contextos.contracts.model import MAX_NAME_CHARS
from contextos.contracts.ports.outside import Adapter

_VALUES: Final = frozenset({str, bytes, int, float, bool, type(None), tuple, list, dict, set, frozenset})
_DATA: Final = _VALUES | {AdapterDefinition, CapabilityDefinition}
"""Types whose values are neither functions nor adapters."""
_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType, MethodWrapperType)

_LOADED: Final = "loaded:"
"""The prefix of the label of an adapter that the loader made. The rest of the label is the digest of its code."""
_GIVEN: Final = "given:"
"""The prefix of the label of a module that counts as if the code imported it."""
_COVERED: Final = ""
"""Replaces the digest of a module of the standard library or of the runtime, which the pin `runtime` covers."""

RUNTIME_FOLDER: Final = Path(__file__).parents[1]
"""The folder of the installed runtime."""


@functools.cache
def runtime_digest() -> str:
    """Return the digest of the runtime's own files, as they were when a deployment of this process was first built."""
    return tree_digest(RUNTIME_FOLDER)


def stated_by(ports: Iterable[object]) -> tuple[str, ...]:
    """Return the names of the classes of ports that are not code of the runtime, so their statements are unchecked."""
    kinds = {port if isinstance(port, type) else type(port) for port in ports if port is not None}
    foreign = (kind for kind in kinds if not _is_own_class(kind))
    return tuple(sorted(f"{kind.__module__}.{kind.__qualname__}"[:MAX_NAME_CHARS] for kind in foreign))


def _is_own_class(kind: type) -> bool:
    """Return whether a class comes from a module of this runtime that really has it under its name."""
    module = sys.modules.get(kind.__module__)
    ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    return ours and getattr(module, kind.__qualname__, None) is kind


class SourceCode:
    """The digests of the code that this process runs.

    `loaded` are the adapters that the loader made. The source of any other adapter is read at the first question about
    it, and a later change of the file changes nothing. An adapter whose source cannot be read has no digest.
    """

    def __init__(self, *loaded: LoadedAdapters) -> None:
        self._loaded = {id(adapter): (adapter, load.code_digest) for load in loaded for adapter in load.adapters}
        self._loaded_packages = {f"{_LOADED}{load.code_digest}": load.packages for load in loaded}
        self._packages: dict[frozenset[str], Callable[[], str | None] | None] = {}
        self._adapter_modules: dict[int, tuple[Adapter, frozenset[str]]] = {}
        # Threads that ask at the same time read the files once.
        self._read_lock = threading.Lock()
        self._modules: dict[str, str | None] = {}
        self._runtime = runtime_digest()

    def also(self, adapter: Adapter, loaded: LoadedAdapters) -> None:
        """Note another adapter that was made of the same code."""
        self._loaded[id(adapter)] = adapter, loaded.code_digest

    def runtime(self) -> str:
        return self._runtime

    def adapter(self, adapter: Adapter) -> str | None:
        parts = {name: code for name, code in self._collect(adapter, {}, set()).items() if not name.startswith(_GIVEN)}
        # The definition of an adapter of the runtime says it all, unless it holds functions: then their code counts.
        if None in parts.values() or (not parts and _code_values(_attributes(adapter))):
            return None
        only = next(iter(parts.items())) if len(parts) == 1 else ("", None)
        return only[1] if only[0].startswith(_LOADED) else content_address(parts)

    def packages(self, adapter: Adapter) -> Callable[[], str | None] | None:
        """Return a function that returns the digest of the files that the code of an adapter can run beside its own, or
        None once a file differs from what this process first read. Return None for an adapter of the runtime.
        """
        with self._read_lock:
            # The state of the object at the first question counts: a client that it makes later changes no pin.
            if id(adapter) not in self._adapter_modules:
                self._adapter_modules[id(adapter)] = adapter, frozenset(self._collect(adapter, {}, set()))
            modules = self._adapter_modules[id(adapter)][1]
            if modules not in self._packages:
                self._packages[modules] = self._packages_of(modules)
            return self._packages[modules]

    def _packages_of(self, modules: Collection[str]) -> Callable[[], str | None] | None:
        if all(name.startswith(_GIVEN) for name in modules):
            return None
        packages = [self._loaded_packages[name] for name in sorted(modules) if name.startswith(_LOADED)]
        others = [name for name in modules if not name.startswith(_LOADED)]
        files = [entry for entry in (*packages, _packages_of(others) if others else None) if entry is not None]
        return files[0].now if len(files) == 1 else functools.partial(_joint_digest, files) if files else None

    def _collect(self, value: Any, digests: dict[str, str | None], seen: set[int]) -> dict[str, str | None]:
        """Add to `digests`, by name, the digest of each module or loaded adapter that the code of `value` is from."""
        if id(value) in seen:
            return digests
        seen.add(id(value))
        if (entry := self._loaded.get(id(value))) is not None:
            digests[f"{_LOADED}{entry[1]}"] = entry[1]
        elif isinstance(value, functools.partial):
            self._collect(value.func, digests, seen)
            self._add_given((value,), digests)
        elif _is_routine(value):
            innermost = inspect.unwrap(value) if hasattr(value, "__wrapped__") else value
            # A slot of a class that is written in C has no module of its own.
            self._add_modules((getattr(innermost, "__objclass__", innermost),), digests)
            for dependency in getattr(innermost, USES, ()):
                self._collect(dependency, digests, seen)
            self._add_given(_closure_values(innermost), digests)
            if inspect.ismethod(innermost):
                self._add_modules(type(innermost.__self__).__mro__, digests)
                self._add_given(_attributes(innermost.__self__), digests)
        elif parameters := get_args(value):
            for parameter in parameters:
                self._collect(parameter, digests, seen)
        elif isinstance(value, type):
            # A class that a framework made from a function is in no file.
            if getattr(sys.modules.get(value.__module__), value.__name__, None) is value:
                self._add_modules((value,), digests)
        else:
            self._add_modules(type(value).__mro__, digests)
            attributes = _attributes(value)
            for member in _code_values(attributes):
                self._collect(member, digests, seen)
            self._add_given(attributes, digests)
        return digests

    def _add_given(self, values: Iterable[Any], digests: dict[str, str | None]) -> None:
        """Add the modules of values that were given to code from outside, and of the items of such values."""
        for value in values:
            for item in _items_of(value):
                if type(item) in _VALUES:
                    continue
                kinds = _classes_of(item)
                if str(kinds[0].__module__).partition(".")[0] == "contextos":
                    continue
                self._add_modules(kinds, digests, is_given=True)

    def _add_modules(self, kinds: Iterable[Any], digests: dict[str, str | None], *, is_given: bool = False) -> None:
        for kind in kinds:
            name = str(kind.__module__)
            if (code_digest := self._module_digest(name)) == _COVERED:
                continue
            # The program and the modules of the loader cannot be found by a name, so their digest counts.
            if is_given and name != "__main__" and not name.startswith(PACKAGE_PREFIX):
                name, code_digest = f"{_GIVEN}{name}", ""
            digests[name] = code_digest

    def _module_digest(self, name: str) -> str | None:
        """Return the digest of the source of a module as it was at the first question; None if it cannot be read."""
        if name not in self._modules:
            top = name.partition(".")[0]
            is_covered = top == "contextos" or (top in sys.stdlib_module_names and top != "__main__")
            self._modules[name] = _COVERED if is_covered else _source_digest(name)
        return self._modules[name]


def _code_values(attributes: Iterable[Any]) -> list[Any]:
    """Return the functions and adapters among the attributes of an adapter, and in attributes that are mappings."""
    values = list[Any]()
    for attribute in attributes:
        for obj in attribute.values() if type(attribute) is dict or isinstance(attribute, Mapping) else (attribute,):
            if type(obj) not in _DATA and (_is_routine(obj) or isinstance(obj, functools.partial) or _is_adapter(obj)):
                values.append(obj)
    return values


def _is_routine(value: Any) -> bool:
    """Return whether a value is a function, a method or a method descriptor (as `inspect.isroutine`)."""
    if isinstance(value, _FUNCTIONS):
        return True
    return hasattr(type(value), "__get__") and not hasattr(type(value), "__set__") and not isinstance(value, type)


def _classes_of(value: Any) -> Sequence[Any]:
    """Return the objects that have the code of a value: the function itself, or the classes of an object or method."""
    try:
        # A proxy claims to have every attribute, so its own `__getattr__` is not called.
        wrapped = (type if issubclass(type(value), type) else object).__getattribute__(value, "__wrapped__")
    except AttributeError:
        wrapped = None
    innermost = value if wrapped is None else inspect.unwrap(value)
    if inspect.ismethod(innermost):
        innermost = innermost.__self__
    elif _is_routine(innermost):
        return (getattr(innermost, "__objclass__", innermost),)
    return (innermost if isinstance(innermost, type) else type(innermost)).__mro__


def _items_of(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return [*value.values()]
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    return value if type(value) in (list, tuple, set, frozenset) else (value,)


def _closure_values(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # it is empty
            yield cell.cell_contents


def _attributes(value: Any) -> list[Any]:
    values = [*getattr(value, "__dict__", {}).values()]
    if hasattr(type(value), "__slots__"):
        # Slots are found as descriptors: `__slots__` can be a single text, and has unmangled names of private slots.
        for kind in type(value).__mro__:
            for slot in vars(kind).values():
                if isinstance(slot, MemberDescriptorType):
                    with suppress(AttributeError):  # it is empty
                        values.append(slot.__get__(value))
    return values


def _is_adapter(value: Any) -> bool:
    return not isinstance(value, type) and all(
        callable(getattr(value, method, None)) for method in ("describe", "call", "lookup")
    )


def _joint_digest(files: Iterable[PackageFiles]) -> str | None:
    """Return one digest over the files of several adapters, or None if one of them has none."""
    digests = [entry.now() for entry in files]
    return None if None in digests else content_address(digests)


def _packages_of(modules: Collection[str]) -> PackageFiles:
    """Return the files that these loaded modules can run beside their own."""
    names = {name.removeprefix(_GIVEN) for name in modules if name.startswith(_GIVEN)}
    imports = Imports(frozenset(names.difference(modules)))
    for name in sorted(modules):
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        # A package's module that runs as the program (`python -m`) imports from its package.
        name = getattr(getattr(module, "__spec__", None), "name", name)
        if isinstance(file, str) and file.endswith(".py"):
            with suppress(OSError, SyntaxError):
                is_package = hasattr(module, "__path__")
                imports |= read_imports(Path(file).read_bytes(), name, is_package=is_package, file=file)
    return PackageFiles.of(imports)


def _source_digest(module: str) -> str | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        return digest(Path(file).read_bytes()) if isinstance(file, str) else None
    except OSError:
        return None
