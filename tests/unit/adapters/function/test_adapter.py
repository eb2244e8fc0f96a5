"""`FunctionAdapter`: what foreign code may do, and what the Tool Gateway hears of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from contextos.adapters.function.adapter import BusinessError, FunctionAdapter
from contextos.adapters.function.threads import Threads
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.errors import InvalidSettings, LostReply, Overloaded, Unavailable
from contextos.telemetry.logs import ConsoleFormatter, JsonLinesFormatter

Answer = Callable[[Mapping[str, Any], CallContext], Any]
CONTEXT = CallContext("tenant_a", "run_1", "tool_1", "ik_0123456789abcdef", 0, 60_000)
SOON = CallContext("tenant_a", "run_1", "tool_1", "ik_0123456789abcdef", 0, 300)


def definition(strategy: str = "none") -> AdapterDefinition:
    schema = {"type": "object", "additionalProperties": False}
    about = {"input_schema": schema, "output_schema": schema, "idempotency": {"strategy": "none"}, "cost_cents": 0.5}
    read = {"name": "look", "kind": "read", "risk_level": "read", "approval_mode": "read_only", **about}
    write = {"name": "act", "kind": "write", "risk_level": "write_irreversible", "approval_mode": "destructive"}
    write |= about | {"idempotency": {"strategy": strategy}}
    return AdapterDefinition.model_validate(
        {"adapter_id": "adp_test", "type": "function", "version": "1", "capabilities": [read, write]}
    )


def never(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
    raise AssertionError("not called")


def adapter(*, look: Any = never, act: Any = never, **more: Any) -> FunctionAdapter:
    return FunctionAdapter(definition(), {"look": look, "act": act}, **more)


def call(made: FunctionAdapter, capability: str, context: CallContext = CONTEXT) -> AdapterReply:
    return asyncio.run(made.call(capability, {"n": 1}, context))


def raises(error: BaseException) -> Answer:
    def function(args: Mapping[str, Any], context: CallContext) -> Any:
        raise error

    return function


def test_a_sync_function_runs_in_a_thread_and_an_inline_one_does_not() -> None:
    def where(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        return {"thread": threading.get_ident(), "n": args["n"], "key": context.idempotency_key}

    made = adapter(look=where, act=where, inline=("look",))
    inline, threaded = call(made, "look").output, call(made, "act").output
    assert inline == {"thread": threading.get_ident(), "n": 1, "key": CONTEXT.idempotency_key}
    assert threaded is not None
    assert threaded["thread"] != threading.get_ident()


def test_inline_functions_need_no_event_loop() -> None:
    made = adapter(look=lambda args, context: {"n": 2}, inline=("look",))
    running = made.call("look", {}, CONTEXT)
    with pytest.raises(StopIteration) as stopped:
        running.send(None)
    assert stopped.value.value.output == {"n": 2}


def test_a_plain_dict_is_charged_the_declared_cost_and_a_reply_is_kept_as_it_is() -> None:
    reply = AdapterReply(output={"n": 1}, mutations=("thing:1",), cost_cents=3)
    made = adapter(look=lambda args, context: {"n": 1}, act=lambda args, context: reply)
    assert call(made, "look").cost_cents == 0.5
    assert call(made, "act") == reply


def test_an_async_function_is_awaited() -> None:
    async def function(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"n": args["n"]}

    assert call(adapter(act=function), "act").output == {"n": 1}


def test_a_business_error_is_a_reply() -> None:
    reply = call(adapter(act=raises(BusinessError("sold_out", "there are none left", retryable=True))), "act")
    assert reply.output is None
    assert reply.error is not None
    assert (reply.error.code, reply.error.message, reply.error.retryable) == ("sold_out", "there are none left", True)


@pytest.mark.parametrize("error", [Unavailable("shop", "closed"), LostReply("gone")])
@pytest.mark.parametrize("capability", ["look", "act"])
def test_a_certainty_stated_by_a_function_passes_through(error: Exception, capability: str) -> None:
    with pytest.raises(type(error)) as raised:
        call(adapter(look=raises(error), act=raises(error)), capability)
    assert raised.value is error


class OddError(Exception):
    """An error that no list of known ones holds."""


DEFECTS = [ZeroDivisionError(), KeyError("x"), NameError("y")]


@pytest.mark.parametrize("error", [OddError(), TimeoutError(), ssl.SSLCertVerificationError(), *DEFECTS])
@pytest.mark.parametrize(("capability", "heard"), [("look", Unavailable), ("act", LostReply)])
def test_a_fault_of_a_write_may_have_happened_and_one_of_a_read_did_not(
    error: Exception, capability: str, heard: type[Exception]
) -> None:
    if capability == "look" and error in DEFECTS:
        assert defect(call(adapter(look=raises(error)), "look")) == type(error).__name__
        return
    with pytest.raises(heard, match=type(error).__name__) as raised:
        call(adapter(look=raises(error), act=raises(error)), capability)
    assert type(raised.value.__cause__) is type(error)


def defect(reply: AdapterReply) -> str:
    """The exception that a reply names as a defect of its tool."""
    assert reply.error is not None
    assert (reply.error.code, reply.error.retryable) == ("tool_defect", False)
    return reply.error.message.split("`")[3]


@pytest.mark.parametrize(("capability", "heard"), [("look", Unavailable), ("act", LostReply)])
def test_an_answer_that_is_no_object_is_a_fault(capability: str, heard: type[Exception]) -> None:
    def text(args: Mapping[str, Any], context: CallContext) -> str:
        return "done"

    with pytest.raises(heard, match="str"):
        call(adapter(look=text, act=text), capability)


REPLY = AdapterReply(output={})
NO_REPLIES = [
    {1: 2},
    None,
    7,
    AdapterReply.model_construct(output={1: 2}),
    REPLY.model_copy(update={"cost_cents": 1e300}),
    REPLY.model_copy(update={"cost_cents": float("nan")}),
    REPLY.model_copy(update={"mutations": ("half \ud800",)}),
    REPLY.model_copy(update={"mutations": 7}),
]


@pytest.mark.parametrize("answer", NO_REPLIES, ids=lambda answer: repr(answer)[:60])
@pytest.mark.parametrize(("capability", "heard"), [("look", Unavailable), ("act", LostReply)])
def test_an_answer_that_makes_no_reply_is_a_fault(answer: Any, capability: str, heard: type[Exception]) -> None:
    told = adapter(look=lambda args, context: answer, act=lambda args, context: answer)
    if capability == "look" and isinstance(answer, dict | AdapterReply):
        assert defect(call(told, "look")) in ("ValidationError", "InvalidInput", "MalformedJson", "TypeError")
        return
    with pytest.raises(heard):
        call(told, capability)


@pytest.mark.parametrize(("capability", "heard"), [("look", Unavailable), ("act", LostReply)])
def test_a_cost_that_cannot_be_counted_is_a_fault(capability: str, heard: type[Exception]) -> None:
    def dear(args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        return AdapterReply(output={}, cost_cents=1e300)

    if capability == "look":
        assert defect(call(adapter(look=dear), "look")) == "ValidationError"
        return
    with pytest.raises(heard, match="ValidationError"):
        call(adapter(look=dear, act=dear), capability)


class MuteError(BusinessError):
    """An error that cannot be reported."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BusinessError("c" * 600, "m" * 300_000), "c" * 512, "m" * 262_144),
        (BusinessError(404, "gone"), "404", "gone"),  # type: ignore[arg-type]
        (BusinessError("half", "a\ud800b"), "half", "a?b"),
        (BusinessError("x", None, retryable=None), "x", "None"),  # type: ignore[arg-type]
    ],
    ids=["long", "number", "half a character", "nothing"],
)
def test_a_business_error_is_reported_whatever_it_holds(error: BusinessError, code: str, message: str) -> None:
    error_of_reply = call(adapter(act=raises(error)), "act").error
    assert error_of_reply is not None
    assert (error_of_reply.code, error_of_reply.message, error_of_reply.retryable) == (code, message, False)


def test_a_business_error_that_cannot_be_reported_is_a_fault() -> None:
    with pytest.raises(LostReply, match="ZeroDivisionError"):
        call(adapter(act=raises(MuteError("x", "y"))), "act")


@pytest.mark.parametrize(("capability", "heard"), [("look", Unavailable), ("act", LostReply)])
def test_a_thread_that_does_not_answer_in_time_goes_on(capability: str, heard: type[Exception]) -> None:
    go, done = threading.Event(), threading.Event()

    def slow(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        go.wait(10)
        done.set()
        return {}

    made = adapter(look=slow, act=slow)
    with pytest.raises(heard, match="did not answer"):
        call(made, capability, SOON)
    assert not done.is_set()
    go.set()
    assert done.wait(10), "the call happened after the caller gave up"


@pytest.mark.parametrize(("capability", "heard"), [("look", Unavailable), ("act", LostReply)])
def test_an_error_raised_by_a_thread_after_its_timeout_is_printed_nowhere(
    capability: str, heard: type[Exception]
) -> None:
    go, printed = threading.Event(), []

    def slow(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        go.wait(10)
        raise RuntimeError("sk-live-secret")

    async def late() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: printed.append(context))
        with pytest.raises(heard, match="did not answer"):
            await adapter(look=slow, act=slow).call(capability, {"n": 1}, SOON)
        go.set()
        await asyncio.sleep(0.1)
        gc.collect()

    asyncio.run(late())
    assert not printed, "asyncio prints the exception of a future that nobody awaits"


@pytest.mark.parametrize(("capability", "heard"), [("look", Unavailable), ("act", LostReply)])
def test_an_async_function_that_does_not_answer_in_time_is_stopped(capability: str, heard: type[Exception]) -> None:
    stopped = []

    async def slow(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)
        return {}

    with pytest.raises(heard, match="did not answer"):
        call(adapter(look=slow, act=slow), capability, SOON)
    assert stopped == [True]


def test_more_calls_than_may_wait_for_a_thread_are_refused_at_once_as_overload() -> None:
    go, sent = threading.Event(), []

    def slow(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        sent.append(args["n"])
        go.wait(10)
        return {}

    made = adapter(act=slow, threads=1, queue_limit=2)

    async def crowd() -> list[Any]:
        calls = [asyncio.ensure_future(made.call("act", {"n": number}, CONTEXT)) for number in range(6)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        go.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    done = asyncio.run(crowd())
    assert [type(one) for one in done] == [AdapterReply] * 3 + [Overloaded] * 3
    assert all(one.retry_after_ms > 0 for one in done[3:])
    assert sorted(sent) == [0, 1, 2]
    assert asyncio.run(made.call("act", {"n": 9}, CONTEXT)) == done[0]


def test_a_call_that_never_got_a_thread_certainly_did_not_happen() -> None:
    go, sent = threading.Event(), []

    def slow(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        sent.append(args["n"])
        go.wait(10)
        return {}

    made = adapter(act=slow, threads=1)

    async def both() -> list[Any]:
        first = asyncio.ensure_future(made.call("act", {"n": 1}, CONTEXT))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="threads are taken"):
            await made.call("act", {"n": 2}, SOON)
        go.set()
        await first
        return sent

    assert asyncio.run(both()) == [1]


@pytest.mark.requirement("R-FAIR")
def test_a_tenant_whose_functions_are_slow_takes_neither_the_threads_nor_the_queue_of_another() -> None:
    go, sent = threading.Event(), []

    def slow(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        sent.append((context.tenant_id, args["n"]))
        if context.tenant_id == "noisy":
            go.wait(10)
        return {}

    made = adapter(look=slow, threads=2, queue_limit=3)

    def ask(tenant: str, number: int) -> Awaitable[AdapterReply]:
        return asyncio.ensure_future(made.call("look", {"n": number}, replace(CONTEXT, tenant_id=tenant)))

    async def crowd() -> None:
        noisy = [ask("noisy", number) for number in range(6)]
        for number in range(2):
            await ask("quiet", number)
        assert sorted(sent) == [("noisy", 0), ("quiet", 0), ("quiet", 1)]
        go.set()
        done = await asyncio.gather(*noisy, return_exceptions=True)
        assert [type(one) for one in done] == [AdapterReply] * 4 + [Overloaded] * 2

    asyncio.run(crowd())
    assert [number for tenant, number in sent if tenant == "noisy"] == [0, 1, 2, 3]


@pytest.mark.requirement("R-FAIR")
def test_a_few_tenants_whose_functions_are_slow_leave_a_thread_to_the_next_and_it_comes_back_to_all() -> None:
    over, rest, running, lock = threading.Event(), threading.Event(), Counter[str](), threading.Lock()

    def slow(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        with lock:
            running[context.tenant_id] += 1
        if context.tenant_id != "quick":
            (over if context.tenant_id == "a" else rest).wait(30)
        with lock:
            running[context.tenant_id] -= 1
        return {}

    made = adapter(look=slow, threads=16)

    async def crowd() -> None:
        calls = {}
        for name in ("a", "b", "c", "d"):
            calls[name] = [ask(name) for _ in range(30)]
            await asyncio.sleep(0)
        assert (await ask("quick")).output == {}
        await until(lambda: running.total() == 15)
        assert [running[name] for name in calls] == [8, 4, 2, 1]
        over.set()
        await asyncio.gather(*calls.pop("a"))
        # Each of the others gets a part of what one gave back, and a thread is still left for the next.
        await until(lambda: running["d"] > 1)
        assert (await ask("quick")).output == {}
        rest.set()
        await asyncio.gather(*(call for line in calls.values() for call in line))

    async def until(seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not seen():  # noqa: ASYNC110 - the functions run in threads
                await asyncio.sleep(0.01)

    def ask(tenant: str) -> Awaitable[AdapterReply]:
        return asyncio.ensure_future(made.call("look", {"n": 1}, replace(CONTEXT, tenant_id=tenant)))

    asyncio.run(crowd())


def test_tenants_that_wait_for_a_thread_take_turns() -> None:
    go, sent = threading.Event(), []

    def slow(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        go.wait(10)
        sent.append(context.tenant_id)
        return {}

    made = adapter(look=slow, threads=1)

    async def crowd() -> None:
        tenants = ["one"] * 5 + ["two"] * 2
        await asyncio.gather(
            *(made.call("look", {"n": 1}, replace(CONTEXT, tenant_id=name)) for name in tenants),
            asyncio.to_thread(go.set),
        )

    asyncio.run(crowd())
    assert sent == ["one", "two", "one", "two", "one", "one", "one"]


@pytest.mark.parametrize(("is_late", "answered"), [(lambda: True, Overloaded), (lambda: False, AdapterReply)])
def test_a_call_whose_time_is_over_when_its_thread_starts_is_not_made(is_late: Any, answered: type) -> None:
    go, sent = threading.Event(), []

    def slow(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        sent.append(args["n"])
        go.wait(10)
        return {}

    made = adapter(act=slow, threads=1)

    async def both() -> list[Any]:
        first = made.call("act", {"n": 1}, CONTEXT)
        second = made.call("act", {"n": 2}, replace(CONTEXT, is_late=is_late))
        return await asyncio.gather(first, second, asyncio.to_thread(go.set), return_exceptions=True)

    assert type(asyncio.run(both())[1]) is answered
    assert sent == ([1] if answered is Overloaded else [1, 2])


@pytest.mark.parametrize(("is_late", "answered"), [(lambda: True, Overloaded), (lambda: False, AdapterReply)])
def test_an_async_call_whose_time_is_over_when_it_begins_is_not_made(is_late: Any, answered: type) -> None:
    sent = []

    async def pay(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        sent.append(args["n"])
        return {}

    async def one() -> list[Any]:
        called = adapter(act=pay).call("act", {"n": 1}, replace(CONTEXT, is_late=is_late))
        return await asyncio.gather(called, return_exceptions=True)

    assert type(asyncio.run(one())[0]) is answered
    assert sent == ([] if answered is Overloaded else [1])


def test_an_async_function_runs_on_the_event_loop_and_takes_no_thread() -> None:
    async def where(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        return {"thread": threading.current_thread().name}

    before = threading.active_count()
    answers = [call(adapter(look=where), "look").output for _ in range(3)]
    assert answers == [{"thread": threading.current_thread().name}] * 3
    assert threading.active_count() <= before


def test_a_call_that_waits_when_the_adapter_is_closed_is_not_made() -> None:
    go, sent = threading.Event(), []

    def slow(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        sent.append(args["n"])
        go.wait(10)
        return {}

    made = adapter(act=slow, threads=1)

    async def both() -> None:
        calls = [asyncio.ensure_future(made.call("act", {"n": number}, CONTEXT)) for number in range(2)]
        await asyncio.sleep(0)
        made.close()
        go.set()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in done] == [AdapterReply, Overloaded]

    asyncio.run(both())
    assert sent == [0]


def test_an_unknown_capability_did_not_happen() -> None:
    with pytest.raises(Unavailable, match="no capability"):
        call(adapter(), "destroy")


def looked_up(function: Any, context: CallContext = CONTEXT) -> AdapterReply | None:
    made = FunctionAdapter(definition("lookup"), {"look": never, "act": never}, {"act": function})
    return asyncio.run(made.lookup("act", "ik_0123456789abcdef", context))


def test_a_lookup_is_asked_by_key_and_may_know_of_nothing() -> None:
    assert looked_up(lambda key, context: None) is None
    found = looked_up(lambda key, context: {"key": key})
    assert found is not None
    assert found.output == {"key": "ik_0123456789abcdef"}


@pytest.mark.parametrize("answer", [{1: 2}, 7, False], ids=repr)
def test_a_lookup_that_answers_no_reply_says_nothing_certain(answer: Any) -> None:
    with pytest.raises(LostReply):
        looked_up(lambda key, context: answer)


def test_a_lookup_may_tell_a_business_error() -> None:
    found = looked_up(raises(BusinessError("declined", "no")))
    assert found is not None
    assert found.error is not None
    assert found.error.code == "declined"


@pytest.mark.parametrize("error", [Unavailable("shop", "closed"), LostReply("gone"), OddError(), OSError()])
def test_a_lookup_never_says_that_nothing_happened(error: Exception) -> None:
    with pytest.raises(LostReply):
        looked_up(raises(error))


def test_a_lookup_that_does_not_answer_in_time_says_nothing_certain() -> None:
    go = threading.Event()
    with pytest.raises(LostReply, match="did not answer"):
        looked_up(lambda key, context: go.wait(10), SOON)
    go.set()


def test_what_cannot_be_looked_up_is_not_known() -> None:
    with pytest.raises(LostReply, match="cannot be looked up"):
        asyncio.run(adapter().lookup("act", "ik_0123456789abcdef", CONTEXT))


async def a_coroutine(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("functions", "lookups", "inline", "strategy", "said"),
    [
        ({"look": never}, {}, (), "none", "has no function"),
        ({"look": never, "act": never, "more": never}, {}, (), "none", "not declared"),
        ({"look": never, "act": never}, {"more": never}, (), "none", "not declared"),
        ({"look": never, "act": never}, {}, ("more",), "none", "not declared"),
        ({"look": never, "act": never}, {}, (), "lookup", "has no lookup"),
        ({"look": never, "act": never}, {}, ("act",), "none", "cannot run inline"),
        ({"look": a_coroutine, "act": never}, {}, ("look",), "none", "cannot run inline"),
    ],
)
def test_functions_and_declaration_agree_or_nothing_starts(
    functions: Any, lookups: Any, inline: Any, strategy: str, said: str
) -> None:
    with pytest.raises(InvalidSettings, match=said):
        FunctionAdapter(definition(strategy), functions, lookups, inline=inline)


def test_the_description_is_one_object() -> None:
    made = adapter()
    assert made.describe() is made.describe()


def test_a_closed_adapter_takes_no_calls_and_says_that_none_was_made() -> None:
    sent: list[int] = []
    made = adapter(act=lambda args, context: sent.append(1) or {}, queue_limit=1)
    made.close()
    for _ in range(20):
        with pytest.raises(Overloaded):
            call(made, "act")
    assert not sent


def test_a_thread_that_cannot_be_started_takes_no_other_call_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    go, made = threading.Event(), adapter(act=lambda args, context: go.wait(10) and {}, threads=2)
    start = threading.Thread.start

    async def crowd() -> list[Any]:
        other = replace(CONTEXT, tenant_id="tenant_b")
        first = asyncio.ensure_future(made.call("act", {"n": 0}, other))
        await asyncio.sleep(0)
        monkeypatch.setattr(threading.Thread, "start", fails)
        calls = [asyncio.ensure_future(made.call("act", {"n": n}, CONTEXT)) for n in range(3)]
        await asyncio.wait(calls, timeout=0.01)
        monkeypatch.setattr(threading.Thread, "start", start)
        go.set()
        return await asyncio.gather(first, *calls, return_exceptions=True)

    def fails(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    heard = [type(one) for one in asyncio.run(crowd())]
    assert heard == [AdapterReply, *[LostReply] * 3], "it may still be made: it stands in line"
    # Nothing of it keeps a thread, and the line is worked off.
    assert asyncio.run(made.call("act", {"n": 4}, CONTEXT)).output is not None
    assert not made._threads._queues


def test_what_a_function_raises_after_its_timeout_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    go, raised = threading.Event(), threading.Event()

    def late(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        go.wait(10)
        raised.set()
        raise ValueError("a secret")

    made = adapter(act=late, threads=1)
    with pytest.raises(LostReply, match="did not answer"):
        call(made, "act", SOON)
    assert not caplog.records
    go.set()
    assert raised.wait(10)
    # The next function of the only thread runs when the log has its line.
    made._functions["act"] = lambda args, context: {}
    call(made, "act")
    (line,) = caplog.records
    assert (line.message, vars(line)["error"], "a secret" in str(vars(line))) == (
        "foreign code raised",
        "ValueError",
        False,
    )


def test_a_call_that_an_adapter_takes_in_while_it_is_closed_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    made = adapter(act=lambda args, context: sent.append(1) or {})
    pump = Threads._start_waiting

    def late(threads: Threads) -> None:
        threads.close()
        pump(threads)

    monkeypatch.setattr(Threads, "_start_waiting", late)
    with pytest.raises(Overloaded):
        call(made, "act")
    assert not sent


SECRETS = ["sk-live-0123456789abcdefghij", "4111 1111 1111 1111", "Bearer abcdefghijklmnop0123456789", "hunter2"]


def leaks(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
    api_key, pan, bearer, password = SECRETS  # locals that a traceback with values would show
    try:
        raise KeyError(f"{api_key} {pan}")
    except KeyError as cause:
        error = RuntimeError(f"{bearer} {password}", args)
        error.add_note(f"the note says {api_key}")
        raise error from cause


class Records(logging.Handler):
    """What any handler of an embedding application could see of each record: all of it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    handler, logger = Records(), logging.getLogger("contextos")
    logger.addHandler(handler)
    yield handler.seen
    logger.removeHandler(handler)


@pytest.mark.parametrize("capability", ["look", "act"])
@pytest.mark.parametrize("inline", [(), ("look",)])
def test_a_foreign_exception_is_logged_with_its_frames_and_without_any_of_its_values(
    capability: str, inline: tuple[str, ...], records: list[logging.LogRecord]
) -> None:
    with pytest.raises((Unavailable, LostReply)) as raised:
        call(adapter(look=leaks, act=leaks, inline=inline), capability)
    (record,) = records
    assert (record.name, record.levelname, record.exc_info) == ("contextos.adapters", "ERROR", None)
    fields = {name: getattr(record, name) for name in ("tenant", "run", "tool_call", "capability", "error")}
    assert fields == {
        "tenant": "tenant_a",
        "run": "run_1",
        "tool_call": "tool_1",
        "capability": f"adp_test.{capability}",
        "error": "RuntimeError",
    }
    assert any(line.endswith("in leaks") for line in record.traceback)  # type: ignore[attr-defined]
    assert "KeyError" in record.traceback  # type: ignore[attr-defined]
    written = [repr(vars(record)), JsonLinesFormatter().format(record), ConsoleFormatter().format(record)]
    for secret in [*SECRETS, str(CONTEXT.idempotency_key), "{'n': 1}"]:
        assert all(secret not in text for text in [*written, str(raised.value)]), secret
    assert "it raised `RuntimeError`" in str(raised.value), "what the run's story records"


def test_an_error_of_ours_and_a_refusal_are_not_logged(records: list[logging.LogRecord]) -> None:
    call(adapter(act=raises(BusinessError("sold_out", "none left"))), "act")
    with pytest.raises(Unavailable):
        call(adapter(look=raises(Unavailable("shop", "closed"))), "look")
    assert not records


def test_a_log_handler_that_fails_does_not_change_what_became_of_a_call() -> None:
    def broken(record: logging.LogRecord) -> bool:
        raise OddError

    logger = logging.getLogger("contextos.adapters")
    logger.addFilter(broken)
    try:
        with pytest.raises(LostReply, match="ZeroDivisionError"):
            call(adapter(act=raises(ZeroDivisionError())), "act")
    finally:
        logger.removeFilter(broken)


class Hostile(Exception):
    """An error that lies and raises wherever it is asked about itself."""

    __cause__ = property(lambda self: 1 / 0)  # type: ignore[assignment]
    __class__ = property(lambda self: 1 / 0)  # type: ignore[assignment]

    def __str__(self) -> str:
        raise OddError

    __repr__ = __str__


def test_an_exception_that_raises_when_it_is_described_is_a_fault_like_any_other(
    records: list[logging.LogRecord],
) -> None:
    with pytest.raises(LostReply, match="Hostile"):
        call(adapter(act=raises(Hostile())), "act")
    assert [record.error for record in records] == ["Hostile"]  # type: ignore[attr-defined]
