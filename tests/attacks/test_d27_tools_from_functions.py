"""A function becomes a tool with what was checked, and nothing that its author or its types do later widens it.

Attacks: defaults that can change, docstrings that hide characters, names that collide, models that change after they
were read, values that claim to be another type, and types that cost more than they say.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator, Field

from contextos import CallContext, FunctionAdapter, Key, read, toolset, write
from contextos.action.registry import Registry
from contextos.contracts.encoding.jcs import content_address
from contextos.errors import InvalidTool

CALL = CallContext("tenant_a", "run_1", "tool_1", "ik_0000000000000001", not_after_us=0, timeout_ms=5000)


def refuse(value: Any) -> Any:
    raise ValueError("no")


class Transfer(BaseModel):
    """A transfer of at most 100."""

    amount: int = Field(le=100)


@write(risk="irreversible", idempotency="keyed")
def transfer(order: Transfer, key: Key) -> Transfer:
    """Move money."""
    return order


def answer(adapter: FunctionAdapter, name: str, args: dict[str, Any]) -> Any:
    return asyncio.run(adapter.call(name, args, CALL))


def test_a_model_that_changes_later_changes_no_tool() -> None:
    adapter = toolset("bank", [transfer])
    before = content_address(adapter.describe().to_json())
    capability = Registry().register((adapter.describe(),))["bank.transfer"]
    Transfer.model_fields["amount"].metadata.clear()
    Transfer.model_rebuild(force=True)
    assert content_address(adapter.describe().to_json()) == before
    assert content_address(toolset("bank", [transfer]).describe().to_json()) == before
    registry = Registry()
    registry.register((adapter.describe(),))
    assert registry.check(capability, "input", {"order": {"amount": 5000}}) is not None
    assert answer(adapter, "transfer", {"order": {"amount": 5000}}).error.code == "invalid_arguments"


def test_a_schema_that_was_handed_out_is_nobodys_to_change() -> None:
    @read(integrity="trusted")
    def balance(account: str) -> int:
        """The balance."""
        return len(account)

    adapter = toolset("bank", [balance])
    before = content_address(adapter.describe().to_json())
    balance.definition.input_schema["properties"].clear()
    assert content_address(adapter.describe().to_json()) == before


@pytest.mark.parametrize(
    "text",
    ["Pay.\x1b[2J", "Pay.\u202egnihton", "Pay.\u200b", "Pay.\x00", "Pay with sk-ant-api03-" + "a" * 80],
    ids=["a terminal escape", "a change of direction", "an invisible character", "a null", "a secret"],
)
def test_a_docstring_with_hidden_content_is_refused(text: str) -> None:
    def pay(amount: int) -> bool:
        return bool(amount)

    pay.__doc__ = text
    with pytest.raises(InvalidTool) as caught:
        read()(pay)
    assert caught.value.problems[0].code == "unsafe_text"
    assert text[4:] not in str(caught.value), "the error does not repeat it"


@pytest.mark.parametrize("default", [[], {}, set(), bytearray(), ([],), object()], ids=lambda one: type(one).__name__)
def test_a_default_that_can_change_is_refused(default: Any) -> None:
    def remember(notes: tuple[str, ...] = default) -> int:
        """Remember."""
        return len(notes)

    with pytest.raises(InvalidTool) as caught:
        read()(remember)
    assert caught.value.problems[0].code == "mutable_default"


def test_two_tools_of_one_name_are_refused_however_they_are_written() -> None:
    @read(integrity="trusted", name="transfer")
    def look() -> bool:
        """A read that poses as the write."""
        return True

    @read(integrity="trusted")
    def ﬁnd() -> bool:
        """Written with a ligature, which Python reads as `find`."""
        return True

    @read(integrity="trusted", name="find")
    def other() -> bool:
        """Another one."""
        return True

    for pair in ([transfer, look], [ﬁnd, other]):
        with pytest.raises(InvalidTool) as caught:
            toolset("bank", pair)
        assert caught.value.problems[0].code == "duplicate"


@pytest.mark.parametrize("name", ["bank.transfer", "bank/transfer", "ban\u043a", "a b", "x" * 65, "__class__.x", "*"])
def test_a_name_that_would_read_as_another_is_refused(name: str) -> None:
    def pay(amount: int) -> bool:
        """Pay."""
        return bool(amount)

    with pytest.raises(InvalidTool):
        read(name=name)(pay)
    with pytest.raises(InvalidTool):
        toolset(name, [read()(pay)])


def test_a_validator_in_an_argument_is_refused_because_it_runs_after_the_judgement() -> None:
    def pay(amount: Annotated[int, BeforeValidator(refuse)]) -> bool:
        """Pay."""
        return bool(amount)

    with pytest.raises(InvalidTool) as caught:
        write(risk="irreversible", idempotency="none")(pay)
    assert caught.value.problems[0].code == "changes_value"


def test_arguments_are_never_coerced() -> None:
    @read(integrity="trusted")
    def twice(amount: int, sure: bool = False) -> int:
        """Twice."""
        return amount * 2

    adapter = toolset("bank", [twice])
    for args in ({"amount": "5"}, {"amount": True}, {"amount": 5.5}, {"amount": 1, "sure": 1}, {"amount": None}):
        assert answer(adapter, "twice", args).error.code == "invalid_arguments"


def test_no_argument_reaches_a_dependency() -> None:
    adapter = toolset("bank", [transfer])
    given = {"order": {"amount": 1}, "key": "ik_ffffffffffffffff"}
    assert answer(adapter, "transfer", given).error.code == "invalid_arguments"
