"""What does not verify is said in words and by the exit code."""

from __future__ import annotations

from contextos.cli.runs.faults import exit_code_of_faults, fault_lines


def test_a_fault_is_said_and_hidden_characters_in_it_are_shown() -> None:
    assert fault_lines(None) == []
    [line] = fault_lines("entry 1\x1b[2K")
    assert line == "  DOES NOT VERIFY: entry 1\\u001b[2K; see `contextos verify`"


def test_one_fault_decides_the_exit_code() -> None:
    assert exit_code_of_faults([]) == exit_code_of_faults([None, None]) == 0
    assert exit_code_of_faults([None, "altered", None]) == 3
