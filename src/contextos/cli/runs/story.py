"""The story of a run as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from contextos.cli.layout import folded
from contextos.cli.terminal import Heading
from contextos.deployment.queries.timeline import Story

INDENT: Final = 11


def story_lines(story: Story) -> Iterator[str]:
    """Yield the story of a run (what was asked, known, allowed, done) as lines of at most 80 columns."""
    for number, (title, moments) in enumerate(story.items()):
        if number:
            yield ""
        yield Heading(title)
        for moment in moments:
            stamp = "" if moment.after_us is None else _offset(moment.after_us)
            yield from folded(f"{stamp:>{INDENT - 2}}  ", moment.text)


def _offset(after_us: int) -> str:
    """Return the time since the run began, in the unit that fits."""
    if after_us < 1_000_000:
        return f"{after_us / 1000:.1f} ms"
    if after_us < 60_000_000:
        return f"{after_us / 1e6:.2f} s"
    return f"{after_us / 60e6:.1f} min" if after_us < 3_600_000_000 else f"{after_us / 3.6e9:.1f} h"
