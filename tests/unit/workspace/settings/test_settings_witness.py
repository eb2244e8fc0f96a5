"""The witness is a file, or a URL whose answers nobody on the way can change."""

from __future__ import annotations

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings import WitnessPlace, is_sink_url
from contextos.workspace.settings.reading import check_value


@pytest.mark.parametrize(
    ("witness", "is_sink"),
    [("witness.json", False), ("https://sink.acme.example/heads", True), ("http://127.0.0.1:8080/heads", True)],
)
def test_a_file_and_the_url_of_a_sink_are_witnesses(witness: str, is_sink: bool) -> None:
    check_value(WitnessPlace, witness, "/witness")
    assert is_sink_url(witness) is is_sink


@pytest.mark.parametrize(
    ("witness", "why"),
    [
        ("a\0b", "not a text"),
        ("ftp://sink.acme.example/heads", "not the URL of a sink"),
        ("https://sink.acme.example/heads?tenant=1", "not the URL of a sink"),
        ("https://[", "not the URL of a sink"),
        ("http://sink.acme.example/heads", "not encrypted"),
    ],
)
def test_anything_else_is_refused_with_the_reason(witness: str, why: str) -> None:
    with pytest.raises(InvalidSettings, match=why) as refused:
        check_value(WitnessPlace, witness, "/witness")
    assert refused.value.problems[0].pointer == "/witness"
