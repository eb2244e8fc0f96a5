"""The map of the packages is read from the source: it finds packages, imports and cycles."""

from __future__ import annotations

from pathlib import Path

from docsgen.package_map import cycle, entries, imports, package_arrows, page


def planted(root: Path, files: dict[str, str]) -> Path:
    for name, source in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)
    return root


def test_contextos_has_no_import_cycle() -> None:
    assert cycle(imports()) == []
    assert cycle(package_arrows()) == []


def test_an_import_cycle_is_found(tmp_path: Path) -> None:
    files = {
        "__init__.py": '"""A package."""',
        "a/__init__.py": '"""First. Second."""',
        "a/one.py": "from contextos.b import two",
        "b/__init__.py": '"""B."""',
        "b/two.py": "def f():\n    from contextos.a.one import x",
    }
    root = planted(tmp_path, files)
    assert cycle(imports(root)) == ["a.one", "b.two", "a.one"]
    assert cycle(package_arrows(root)) == ["a", "b", "a"]
    assert [(one.name, one.purpose, one.modules) for one in entries(root)] == [
        ("", "A package.", 1),
        ("a", "First. Second.", 2),
        ("b", "B.", 2),
    ]


def test_what_only_a_type_checker_imports_is_no_arrow(tmp_path: Path) -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from contextos.b import two"
    root = planted(tmp_path, {"a.py": source, "b/__init__.py": "", "b/two.py": ""})
    assert package_arrows(root)["a"] == set()


def test_every_package_is_on_the_page_with_its_purpose() -> None:
    lines = list(page())
    for entry in entries():
        assert entry.purpose, f"`{entry.name}` has no docstring"
        name = f"contextos.{entry.name}" if entry.name else "contextos"
        assert any(line.startswith(f"| `{name}` |") for line in lines)
