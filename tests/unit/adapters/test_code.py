"""The digest of an adapter that an embedder made covers its class and its functions; without a source there is none."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters import code as source_code
from contextos.adapters.code import SourceCode
from contextos.adapters.function.adapter import FunctionAdapter
from contextos.adapters.function.loading import load_function_adapters
from contextos.adapters.scripted import ScriptedAdapter
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
    assert code.adapter(ScriptedAdapter(definition(), {})) is not None


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
    scripted: Any = ScriptedAdapter(definition(), {})
    scripted.client = pytest.Module
    assert code.packages(scripted) is None, "it is an adapter of the runtime"


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
