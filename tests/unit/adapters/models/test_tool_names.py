"""Names of tools, there and back."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from contextos.adapters.models.tool_names import ToolNames

NAMES = st.one_of(st.text(max_size=90), st.text(alphabet="ab._-2", max_size=5), st.just("x" * 64), st.just("x" * 65))


@given(st.lists(NAMES, max_size=20))
def test_every_name_fits_the_pattern_and_comes_back_as_it_was(tools: list[str]) -> None:
    names = ToolNames(tools)
    sent = [names.sent(tool) for tool in dict.fromkeys(tools)]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in sent)
    assert [names.own(name) for name in sent] == list(dict.fromkeys(tools))


def test_a_name_that_fits_is_sent_as_it_is_whatever_stands_before_it() -> None:
    names = ToolNames(["crm.read", "crm:read", "crm_read", "crm_read_2"])
    assert [names.sent(name) for name in ("crm_read", "crm_read_2")] == ["crm_read", "crm_read_2"]
    assert {names.sent("crm.read"), names.sent("crm:read")} == {"crm_read_3", "crm_read_4"}
