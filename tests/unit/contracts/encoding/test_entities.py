"""HTML character references, decoded within bounds."""

from __future__ import annotations

import html

import pytest

from contextos.contracts.encoding.entities import unescape_html


@pytest.mark.parametrize(
    "text", ["", "plain & simple", "&#64;", "&#x40;&#X40", "&amp;&lt&commat;", "&#0;&#1114112;", "&nosuchthing;"]
)
def test_references_are_decoded_as_the_standard_library_does(text: str) -> None:
    assert unescape_html(text) == html.unescape(text)


def test_a_number_that_python_cannot_read_stays_as_it_is() -> None:
    hostile = "&#" + "1" * 5_000 + ";"
    with pytest.raises(ValueError, match="4300"):
        html.unescape(hostile)
    assert unescape_html(hostile).startswith("&#111") or unescape_html(hostile)
