"""Writes a mined pack as YAML, with the origin of each entry as a comment above it.

No recorded text can end a comment or begin an entry: the YAML writer writes the values, and a comment is one line of
escaped text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.yaml_text import write_yaml
from contextos.packs.mining.miner import MinedPack
from contextos.packs.reading import read_declaration

MAX_COMMENT_CHARS: Final = 400

DRAFT_HEADER: Final = """\
A draft: what was recorded while a pack observed, and nothing else. Read it before it is signed.
An entry names calls that it came from. A wrong call that was recorded widened it.
Values that were redacted stay so: such a call is not in here.
`contextos pack test` judges the recording by this file, `contextos pack expand` prints the whole pack."""


def mined_yaml(mined: MinedPack) -> str:
    """Return the short form of a mined pack as YAML with comments."""
    lines = [f"# {line}" for line in DRAFT_HEADER.splitlines()]
    lines += [_comment(f"{count} calls are left out: {reason}", 0) for reason, count in sorted(mined.left_out.items())]
    document = mined.declaration.to_json()
    for name, value in document.items():
        if name in ("deny", "auto_approve"):
            lines += [f"{name}:", *_entry_lines(name, value, mined.notes)]
        elif name == "permissions":
            lines += [f"{name}:", *_permission_lines(value, mined.notes)]
        else:
            lines += [_comment(note, 0) for note in mined.notes.get((name,), ())]
            lines += _yaml_lines({name: value}, 0)
    text = "\n".join(lines) + "\n"
    assert read_declaration(text.encode()).to_json() == document, "the file says what was mined"
    return text


def _entry_lines(name: str, values: Sequence[Any], notes: Mapping[tuple[str, ...], Sequence[str]]) -> Iterator[str]:
    for number, value in enumerate(values):
        yield from (_comment(note, 2) for note in notes.get((name, str(number)), ()))
        yield from _yaml_lines([value], 2)


def _permission_lines(values: Mapping[str, Any], notes: Mapping[tuple[str, ...], Sequence[str]]) -> Iterator[str]:
    for tool, value in values.items():
        yield from (_comment(note, 2) for note in notes.get(("permissions", tool), ()))
        for argument in value["arg_constraints"]:
            yield from (_comment(f"{argument}: {note}", 2) for note in notes.get(("permissions", tool, argument), ()))
        yield from _yaml_lines({tool: value}, 2)


def _comment(text: str, indent: int) -> str:
    line = displayed(text)
    cut = line if len(line) <= MAX_COMMENT_CHARS else f"{line[:MAX_COMMENT_CHARS]}…"
    return f"{' ' * indent}# {cut}"


def _yaml_lines(value: Any, indent: int) -> list[str]:
    text = write_yaml(value, width=100_000)
    return [f"{' ' * indent}{line}" for line in text.rstrip("\n").split("\n")]
