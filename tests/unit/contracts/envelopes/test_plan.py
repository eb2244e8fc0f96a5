"""A source of a parameter is one place."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from contextos.contracts.envelopes.plan import ParameterSource


@pytest.mark.parametrize("source", [{}, {"context": "a", "message": "b"}, {"message": ""}])
def test_a_source_of_a_parameter_is_exactly_one_place(source: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        ParameterSource.model_validate(source)
