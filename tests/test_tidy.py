"""The shape of the code, measured: small modules, short functions, shallow packages, plain names.

Each checker returns what it finds as sentences, so that the planted samples below prove that it can fail.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "contextos"
AGENTSPEC = ROOT / "agentspec"

MODULE_LINES_MAX = 300
MODULE_LINES_MEDIAN_MAX = 130
FUNCTION_LINES_MAX = 70
PACKAGE_DEPTH_MAX = 3
PACKAGE_MODULES_MAX = 18
ROOT_MODULES_MAX = 6
UNFORMATTED_MAX = 20
NAMES_NOT_USED = {"util", "helper", "manager", "handler", "common", "misc", "data", "info", "base"}
EDGES = ("cli", "server")
SCRIPTS = Path("store/postgres/migrations")
"""Alembic runs these by their path; nothing imports them."""

FORMATTED = ("src", "agentspec", "tests", "benchmarks", "examples")
SKIP = re.compile(r"#\s*fmt:\s*(skip|off)")
BANNER = re.compile(r"([-=*#~_+])\1{3,}")
WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def prose_lines(tree: ast.Module) -> set[int]:
    """The lines of docstrings, those under a constant included."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(source: str) -> set[int]:
    """The lines that hold code: no blank ones, no comments, no docstrings."""
    prose = prose_lines(ast.parse(source))
    return {
        number
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in prose
    }


def long_modules(path: Path, source: str) -> Iterator[str]:
    length = len(code_lines(source))
    if length > MODULE_LINES_MAX:
        yield f"{path} has {length} lines of code, the limit is {MODULE_LINES_MAX}; split it by idea"


def long_functions(path: Path, source: str) -> Iterator[str]:
    code = code_lines(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = len(code.intersection(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
            if length > FUNCTION_LINES_MAX:
                where = f"{path}:{node.lineno} `{node.name}`"
                yield f"{where} has {length} lines of code, the limit is {FUNCTION_LINES_MAX}; name its steps"


def deep_packages(path: Path, source: str) -> Iterator[str]:
    if len(path.parts) > PACKAGE_DEPTH_MAX and SCRIPTS not in path.parents:
        yield f"{path} lies deeper than `contextos.<package>.<package>.<module>`"


def forbidden_names(path: Path, source: str) -> Iterator[str]:
    classes = [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    for name in [*path.with_suffix("").parts, *classes]:
        words = {word.lower() for word in WORD.findall(name)}
        said_nothing = (words | {word.removesuffix("s") for word in words}) & NAMES_NOT_USED
        if said_nothing:
            yield f"{path} `{name}` says `{min(said_nothing)}`; name what it is"


def broad_excepts(path: Path, source: str) -> Iterator[str]:
    if path.parts[0] in EDGES:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(type_ is None or ast.unparse(type_) in {"Exception", "BaseException"} for type_ in caught):
                yield f"{path}:{node.lineno} catches everything; only the edges {EDGES} may"


def banner_comments(path: Path, source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and BANNER.search(token.string):
            yield f"{path}:{token.start[0]} is a banner comment; split the module or say why in one line"


def silent_modules(path: Path, source: str) -> Iterator[str]:
    public = not path.stem.startswith("_") or path.stem == "__init__"
    if public and not (ast.get_docstring(ast.parse(source)) or "").strip():
        yield f"{path} has no docstring; say what it is for and what it refuses"


Checker = Callable[[Path, str], Iterator[str]]
CHECKERS: tuple[Checker, ...] = (
    long_modules,
    long_functions,
    deep_packages,
    forbidden_names,
    broad_excepts,
    banner_comments,
    silent_modules,
)


def modules() -> dict[Path, str]:
    return {
        path.relative_to(root): path.read_text(encoding="utf-8")
        for root in (SRC, AGENTSPEC)
        for path in sorted(root.rglob("*.py"))
    }


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_the_code_is_tidy(checker: Checker) -> None:
    found = [finding for path, source in modules().items() for finding in checker(path, source)]
    assert not found, "\n".join(found)


def test_the_median_module_is_small() -> None:
    lengths = [len(code_lines(source)) for path, source in modules().items() if path.name != "__init__.py"]
    assert statistics.median(lengths) <= MODULE_LINES_MEDIAN_MAX


def crowded_packages(paths: Iterable[Path]) -> Iterator[str]:
    """Packages with more modules than a reader can hold, `__init__` included."""
    counted = Counter(path.parent for path in paths if SCRIPTS not in path.parents)
    for package, count in sorted(counted.items()):
        most = ROOT_MODULES_MAX if package == Path() else PACKAGE_MODULES_MAX
        if count > most:
            yield f"contextos/{package} has {count} modules, the limit is {most}; group them by idea"


def test_no_package_is_crowded() -> None:
    found = list(crowded_packages(modules()))
    assert not found, "\n".join(found)


def test_a_crowded_package_is_found() -> None:
    assert len(list(crowded_packages(Path(f"trust/m{number}.py") for number in range(19)))) == 1
    assert len(list(crowded_packages(Path(f"m{number}.py") for number in range(7)))) == 1
    assert not list(crowded_packages(Path(f"trust/m{number}.py") for number in range(18)))


def test_only_a_few_tables_are_kept_from_the_formatter() -> None:
    sources = [path for folder in FORMATTED for path in (ROOT / folder).rglob("*.py")]
    skips = [line for path in sources for line in path.read_text("utf-8").splitlines() if SKIP.search(line)]
    assert len(skips) <= UNFORMATTED_MAX, "\n".join(skips)


def body(lines: int) -> str:
    return "".join(f"    x{number} = {number}\n" for number in range(lines))


PLANTED = [
    (long_modules, "trust/seal.py", "x = 1\n" * 301),
    (long_functions, "trust/seal.py", "def f():\n" + body(70)),
    (long_functions, "trust/seal.py", "class C:\n    async def f(self):\n" + body(70).replace("    ", "        ")),
    (deep_packages, "trust/seal/keys/ring.py", ""),
    (deep_packages, "trust/postgres/migrations/keys.py", ""),
    (forbidden_names, "trust/helpers.py", ""),
    (forbidden_names, "trust/base_rules.py", ""),
    (forbidden_names, "managers/seal.py", ""),
    (forbidden_names, "trust/seal.py", "class SealManager: ..."),
    (broad_excepts, "trust/seal.py", "try:\n    f()\nexcept:\n    pass"),
    (broad_excepts, "trust/seal.py", "try:\n    f()\nexcept Exception as e:\n    raise"),
    (broad_excepts, "trust/seal.py", "try:\n    f()\nexcept (ValueError, BaseException):\n    pass"),
    (banner_comments, "trust/seal.py", "x = 1\n# ---- keys ----\n"),
    (banner_comments, "trust/seal.py", "########\n# keys #\n########\n"),
    (silent_modules, "trust/seal.py", "x = 1\n"),
    (silent_modules, "trust/__init__.py", ""),
    (silent_modules, "trust/seal.py", '"""  """'),
]

CLEAN = [
    (long_modules, "trust/seal.py", "x = 1\n" * 300 + "\n# why\n" * 20 + '"""prose\n\nprose"""\n' * 20),
    (long_functions, "trust/seal.py", 'def f():\n    """One.\n\n    Two.\n    """\n' + body(69)),
    (deep_packages, "trust/seal/keys.py", ""),
    (deep_packages, "store/postgres/migrations/versions/0001_first.py", ""),
    (forbidden_names, "trust/database.py", "class Informed: ..."),
    (broad_excepts, "cli/main.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (broad_excepts, "trust/seal.py", "try:\n    f()\nexcept (KeyError, ValueError):\n    pass"),
    (banner_comments, "trust/seal.py", "x = '--------'  # a separator, see __init__\n"),
    (silent_modules, "trust/_seal.py", "x = 1\n"),
    (silent_modules, "trust/seal.py", '"""Seals; refuses unknown keys."""\n'),
]


@pytest.mark.parametrize(("checker", "path", "source"), PLANTED)
def test_a_planted_blemish_is_found(checker: Checker, path: str, source: str) -> None:
    assert len(list(checker(Path(path), source))) >= 1


@pytest.mark.parametrize(("checker", "path", "source"), CLEAN)
def test_clean_code_is_left_alone(checker: Checker, path: str, source: str) -> None:
    assert list(checker(Path(path), source)) == []
