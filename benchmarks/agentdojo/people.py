"""The person whom the gate asks, in four kinds. None of them knows a task or an attack.

The careful person has the documents of the household as they were written, and the user's own request. A destination is
approved if it stands there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.agentdojo.tools import texts_of

Answer = Callable[[str, Sequence[Any]], bool | None]
"""Answers a question about a call, of which it is given the user's request and the destinations: whether the call is
approved, or None if nobody answers.
"""


def careful(documents: Mapping[str, Any]) -> Answer:
    """Return a person who compares each destination with the documents and the request."""
    texts = list(texts_of(documents))

    def answer(request: str, destinations: Sequence[Any]) -> bool:
        return all(any(_stands_in(str(one), text) for text in (*texts, request)) for one in destinations)

    return answer


def denies_all(_request: str, _destinations: Sequence[Any]) -> bool:
    return False


def approves_all(_request: str, _destinations: Sequence[Any]) -> bool:
    return True


def never_answers(_request: str, _destinations: Sequence[Any]) -> None:
    return None


def _stands_in(value: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None
