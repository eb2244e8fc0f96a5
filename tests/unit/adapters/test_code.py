"""The digest of an adapter that an embedder made covers its class and its functions; without a source there is none."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters import code as source_code
from contextos.adapters.code import SourceCode
from contextos.adapters.function.adapter import USES, FunctionAdapter
from contextos.adapters.function.loading import load_function_adapters
from contextos.packs.mining.backtest import RecordedAnswers
from tests.unit.adapters.function.test_adapter import definition


def look(args: Any, context: Any) -> dict[str, Any]:
    return {}


class Wrapper:
    """An adapter of an embedder around another one."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def describe(self) -> Any:
        return self.inner.describe()

    async def call(self, *asked: Any) -> Any:
        return await self.inner.call(*asked)

    async def lookup(self, *asked: Any) -> Any:
        return await self.inner.lookup(*asked)


def function(**functions: Any) -> FunctionAdapter:
    return FunctionAdapter(definition(), {"look": look, "act": look, **functions})


def nameless() -> Any:
    """A function that was typed in, without a file."""
    names: dict[str, Any] = {"__name__": "typed_in"}
    exec("def act(args, context):\n    return {}\n", names)
    return names["act"]


def test_it_covers_the_modules_of_functions_wherever_they_are_held() -> None:
    code = SourceCode()
    one = code.adapter(function())
    assert one is not None
    assert code.adapter(function(act=functools.partial(look))) == one
    assert code.adapter(Wrapper(function())) == one, "the class is in the module of the function"
    assert code.adapter(function(act=load_function_adapters)) == one, "the pin `runtime` covers modules of ours"
    assert code.adapter(function(act=definition)) != one


def test_code_without_a_file_has_no_digest() -> None:
    code = SourceCode()
    assert code.adapter(function(act=nameless())) is None
    assert code.adapter(Wrapper(function(act=nameless()))) is None
    assert code.adapter(FunctionAdapter(definition(), dict.fromkeys(("look", "act"), load_function_adapters))) is None
    assert code.adapter(RecordedAnswers(definition())) is not None


@pytest.mark.parametrize("wrapped", [False, True])
def test_another_function_in_an_adapter_is_other_code(wrapped: bool) -> None:
    code, inner = SourceCode(), function()
    adapter = Wrapper(inner) if wrapped else inner
    first = code.adapter(adapter)
    assert first is not None
    assert code.adapter(adapter) == first
    inner._functions["act"] = definition
    second = code.adapter(adapter)
    assert second not in (None, first)
    inner._functions["act"] = nameless()
    assert code.adapter(adapter) is None
    inner._functions = dict.fromkeys(inner._functions, look)
    assert code.adapter(adapter) == first


def test_what_is_changed_in_place_is_other_code() -> None:
    """A digest is made anew each time: no list of what an adapter holds has all that can change."""

    def closing(held: Any) -> Any:
        def call(args: Any) -> Any:
            return held(args)

        call.__module__ = look.__module__
        return call

    class Other(Wrapper):
        pass

    Other.__module__ = "typed_in"
    changes: list[tuple[Any, Callable[[Any], None]]] = [
        (partial(look), lambda adapter: adapter.inner._functions["act"].__setstate__((nameless(), (), {}, {}))),
        (closing(look), lambda adapter: setattr(adapter.inner._functions["act"], "__wrapped__", nameless())),
        (look, lambda adapter: setattr(adapter, "__class__", Other)),
    ]
    for held, change in changes:
        code, adapter = SourceCode(), Wrapper(function(act=held))
        first = code.adapter(adapter)
        assert first is not None
        change(adapter)
        assert code.adapter(adapter) != first, held


class Held:
    """What code of an adapter holds."""

    __slots__ = ("inside",)

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def call(self, args: Any) -> Any:
        return args

    @classmethod
    def of_class(cls, args: Any) -> Any:
        return args


class HeldAlone(Held):
    """A holder whose slots are stated as one text, and in a class below."""

    __slots__ = "alone"

    def __init__(self, inside: Any) -> None:
        self.alone = inside


class HeldPrivately(Held):
    __slots__ = ("__private",)

    def __init__(self, inside: Any) -> None:
        self.__private = inside

    def put(self, inside: Any) -> None:
        self.__private = inside


class Proxy:
    """An object that has every attribute that it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return nameless()


class Named(dict[str, Any]):
    """A mapping that is not a plain object."""


def of_program(value: Any) -> Any:
    """The value as if the program, whose own module counts as given, had made its class or function."""
    value.__module__ = "__main__"
    return value


def made_by_program(base: type = object) -> Any:
    return of_program(type("Own", (base,), {}))()


def of_json(base: type) -> Any:
    """A class that a module of the standard library has made, which the pin `runtime` covers."""
    return type("Kind", (base,), {"__module__": "json"})


def around(function: Any) -> Any:
    """A function with the one given in its closure."""

    def call(args: Any) -> Any:
        return function(args)

    call.__module__ = look.__module__
    return call


def cell(function: Any) -> Any:
    return function.__closure__[0]


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "the module of its class": (lambda: type("Kind", (Wrapper,), {})(function()), lambda one: nameless_class(one)),
    "a base of its class": (
        lambda: type("Kind", (type("Base", (Wrapper,), {}),), {})(function()),
        lambda one: nameless_class(one, 1),
    ),
    "the module of a function": (lambda: function(act=around(look)), lambda one: unnamed(one._functions["act"])),
    "what a closure has": (
        lambda: function(act=around(look)),
        lambda one: setattr(cell(one._functions["act"]), "cell_contents", of_program(nameless())),
    ),
    "what is in a list in a closure": (
        lambda: function(act=around([look])),
        lambda one: cell(one._functions["act"]).cell_contents.append(of_program(nameless())),
    ),
    "an argument of a partial": (
        lambda: function(act=partial(look, {})),
        lambda one: one._functions["act"].__setstate__((look, (made_by_program(),), {}, {})),
    ),
    "a keyword of a partial": (
        lambda: function(act=partial(look)),
        lambda one: one._functions["act"].keywords.update(context=made_by_program()),
    ),
    "an attribute of the object of a method": (
        lambda: function(act=Wrapper(1).describe),
        lambda one: setattr(one._functions["act"].__self__, "inner", made_by_program()),
    ),
    "a slot of the object of a method": (
        lambda: function(act=Held(1).call),
        lambda one: setattr(one._functions["act"].__self__, "inside", [made_by_program()]),
    ),
    "the class of the object of a method": (
        lambda: function(act=of_json(Held)(1).call),
        lambda one: unnamed(type(one._functions["act"].__self__)),
    ),
    "a base of the class of the object of a method": (
        lambda: function(act=of_json(of_json(Held))(1).call),
        lambda one: unnamed(type(one._functions["act"].__self__).__mro__[1]),
    ),
    "the class of the object of a method in a closure": (
        lambda: function(act=around(of_json(Held)(1).call)),
        lambda one: of_program(type(cell(one._functions["act"]).cell_contents.__self__)),
    ),
    "a base of the class whose method is in a closure": (
        lambda: function(act=around(of_json(of_json(Held)).of_class)),
        lambda one: of_program(cell(one._functions["act"]).cell_contents.__self__.__mro__[1]),
    ),
    "a slot that is stated as one text": (
        lambda: function(act=HeldAlone(1).call),
        lambda one: setattr(one._functions["act"].__self__, "alone", made_by_program()),
    ),
    "a private slot": (
        lambda: function(act=HeldPrivately(1).call),
        lambda one: one._functions["act"].__self__.put(made_by_program()),
    ),
    "an entry of a mapping in an attribute": (
        lambda: Wrapper({"a": look, "b": function()}),
        lambda one: one.inner.update(a=nameless()),
    ),
    "an entry of another mapping": (lambda: Wrapper(Named(a=look)), lambda one: one.inner.update(a=nameless())),
    "what a function says that it uses": (
        lambda: function(act=using(look)),
        lambda one: getattr(one._functions["act"], USES).append(nameless()),
    ),
    "a type that a function uses": (
        lambda: function(act=using(list[int])),
        lambda one: getattr(one._functions["act"], USES).append(dict[str, pytest.Module]),
    ),
    "what a function wraps": (
        lambda: function(act=around(look)),
        lambda one: setattr(one._functions["act"], "__wrapped__", nameless()),
    ),
    "what an attribute wraps": (
        lambda: Wrapper(Held(1)),
        lambda one: setattr(one, "client", functools.update_wrapper(Wrapper(1), of_program(nameless()))),
    ),
    "what a class wraps": (
        lambda: Wrapper(type("Kind", (), {"__module__": "json"})),
        lambda one: setattr(one.inner, "__wrapped__", of_program(type("Own", (), {}))),
    ),
    "a descriptor among the attributes": (
        lambda: Wrapper(1),
        lambda one: setattr(one, "inner", of_program(type("Own", (), {"__get__": lambda *_: None}))()),
    ),
    "an object beside a proxy": (lambda: Wrapper([Proxy()]), lambda one: one.inner.append(made_by_program())),
    "the class of what it holds": (
        lambda: Wrapper(type("Kind", (), {"__module__": "json"})()),
        lambda one: setattr(type(one.inner), "__module__", "__main__"),
    ),
    "an adapter in an adapter": (lambda: Wrapper(function()), lambda one: setattr(one, "other", Wrapper(nameless()))),
}


def nameless_class(adapter: Any, base: int = 0) -> None:
    type(adapter).__mro__[base].__module__ = "typed_in"


def unnamed(function: Any) -> None:
    function.__module__ = "typed_in"


def using(*used: Any) -> Any:
    made = around(look)
    setattr(made, USES, [*used])
    return made


@pytest.mark.parametrize("changed", CHANGES)
def test_whatever_is_changed_in_place_below_an_adapter_is_other_code(changed: str) -> None:
    make, change = CHANGES[changed]
    code, adapter = SourceCode(), make()
    first = code.adapter(adapter)
    assert first == SourceCode().adapter(adapter)
    change(adapter)
    assert code.adapter(adapter) != first
    assert code.adapter(adapter) == SourceCode().adapter(adapter), "what was seen before counts for nothing"


@pytest.mark.parametrize("held", [lambda slot: slot, around], ids=["as a function", "in a closure"])
def test_a_method_that_is_written_in_c_counts_as_the_module_of_its_class(held: Callable[[Any], Any]) -> None:
    # By its name, so that it is not among what this module imports.
    foreign = importlib.import_module("pydantic_core").SchemaValidator.validate_python
    code, found = SourceCode(), list[tuple[str | None, str | None]]()
    for method in (str.upper, load_function_adapters, foreign):
        adapter = function(act=held(method))
        imported = code.packages(adapter)
        assert imported is not None
        found.append((code.adapter(adapter), imported()))
    assert None not in found[2]
    assert found[0] == found[1] != found[2], "the pin `runtime` covers the standard library"


def test_a_proxy_is_not_asked_for_what_it_wraps() -> None:
    assert SourceCode().adapter(Wrapper([Proxy()])) == SourceCode().adapter(Wrapper([]))


def test_a_wrapper_around_a_loaded_adapter_keeps_the_digest_of_what_was_loaded(tmp_path: Path) -> None:
    source = (
        "from contextos.adapters.function.adapter import FunctionAdapter\n"
        "from tests.unit.adapters.function.test_adapter import definition\n"
        "def look(args, context):\n    return {}\n"
        "one = FunctionAdapter(definition(), {'look': look, 'act': look})\n"
    )
    digests = []
    for text in (source, source + "# changed\n"):
        (tmp_path / "made.py").write_text(text, "utf-8")
        loaded = load_function_adapters("made.py:one", None, root=tmp_path)
        code = SourceCode(loaded)
        assert code.adapter(loaded.adapters[0]) == loaded.code_digest
        digests.append(code.adapter(Wrapper(loaded.adapters[0])))
    assert None not in digests
    assert len(set(digests)) == 2


def test_what_an_object_makes_later_changes_no_pin() -> None:
    code, adapter = SourceCode(), Wrapper(function())
    first = code.packages(adapter)
    adapter.client = pytest.Module
    assert code.packages(adapter) == first
    assert SourceCode().packages(adapter) != first
    recorded: Any = RecordedAnswers(definition())
    recorded.client = pytest.Module
    assert code.packages(recorded) is None, "it is an adapter of the runtime"


def test_threads_that_begin_at_once_read_what_an_adapter_imports_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    adapter, read_packages = function(), source_code._packages_of

    def slow(modules: Any) -> Any:
        read.append(modules)
        time.sleep(0.05)
        return read_packages(())

    monkeypatch.setattr(source_code, "_packages_of", slow)
    code = SourceCode()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: code.packages(adapter), range(8)))
    assert len(read) == 1


LOADED = (
    "import {package}\n"
    "from contextos.adapters.function.adapter import FunctionAdapter\n"
    "from tests.unit.adapters.function.test_adapter import definition\n"
    "def look(args, context):\n    return {{}}  # {comment}\n"
    "one = FunctionAdapter(definition(), {{'look': look, 'act': look}})\n"
)


class Both(Wrapper):
    """An adapter of an embedder around two others."""

    def __init__(self, inner: Any, other: Any) -> None:
        super().__init__(inner)
        self.other = other


@pytest.mark.usefixtures("looks_each_time")
def test_a_wrapper_is_bound_to_each_adapter_in_it_and_to_what_that_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    (tmp_path / "path").mkdir()
    found = []
    for name in ("imported1", "imported2"):
        (tmp_path / "path" / f"{name}.py").write_text("x = 1\n", "utf-8")
    for comment in ("1", "2"):
        (tmp_path / comment).mkdir()
        text = LOADED.format(comment=comment, package=f"imported{comment}")
        (tmp_path / comment / "shop.py").write_text(text, "utf-8")
        found.append(load_function_adapters("shop.py:one", None, root=tmp_path / comment))
    first, second = found
    code = SourceCode(first, second)
    both = Both(first.adapters[0], second.adapters[0])
    one = code.adapter(both)
    assert len({one, code.adapter(Wrapper(first.adapters[0])), code.adapter(Wrapper(second.adapters[0]))}) == 3
    now = code.packages(both)
    assert now is not None
    assert now() is not None
    (tmp_path / "path" / "imported1.py").write_text("x = 2 * 1\n", "utf-8")
    assert now() is None
