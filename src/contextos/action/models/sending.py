"""Send the calls of models of one process (`ModelSender`), with their providers, keys, circuits and rate limits.

Nothing is recorded here: a run records the answer that it gets.
Source: Runtime Architecture, "AI Gateway / LLM Router".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from contextos.action.breaker import CircuitBreakers
from contextos.action.foreign_code import ReportFault, ignore_fault
from contextos.action.models.foreign_provider import provider_reply, reporter
from contextos.contracts.envelopes.models import DEFAULT_TOKENIZER, ModelOutcome, ModelProfile, ModelWire
from contextos.contracts.model import changed
from contextos.contracts.ports.concurrency import Concurrency, ForeignExit
from contextos.contracts.ports.models import ModelCall, ModelProvider, ModelReply, OnText
from contextos.contracts.ports.outside import Clock
from contextos.errors import InvalidInput

MINUTE_US: Final = 60_000_000
FAILED: Final[frozenset[ModelOutcome]] = frozenset({"unavailable", "timed_out", "cut", "malformed", "overloaded"})
"""The outcomes that count against the circuit of a profile."""
CountTokens = Callable[[str, str], Awaitable[int | None]]
"""(name of a tokenizer, text) -> the number of tokens, or None if the tokenizer is not installed."""
KeyOf = Callable[[str], str]
"""Returns the secret of a credential by its name. Raises `InvalidInput` if the deployment has no such credential."""


class ModelSender:
    """Sends calls of models for all runs of one process.

    `pause` waits for a number of microseconds. `report_fault` receives the exceptions of providers. A profile counts as
    `failed` while its circuit is open, and as `busy` while its `max_concurrent` or `calls_per_minute` is used up.
    """

    def __init__(
        self,
        providers: Mapping[ModelWire, ModelProvider],
        key_of: KeyOf,
        clock: Clock,
        breakers: CircuitBreakers,
        concurrency: Concurrency,
        pause: Callable[[int], Awaitable[None]],
        report_fault: ReportFault = ignore_fault,
        count_tokens: CountTokens | None = None,
    ) -> None:
        self._providers, self._key_of, self._clock = providers, key_of, clock
        self._breakers, self._concurrency, self._pause = breakers, concurrency, pause
        self._report_fault, self._count_tokens = report_fault, count_tokens
        self._running_counts: dict[tuple[str, str], int] = {}
        self._start_times: dict[tuple[str, str], deque[int]] = {}

    def unavailable(self, tenant: str, profiles: Iterable[ModelProfile]) -> dict[str, dict[str, int]] | None:
        """Return the `failed` and `busy` profiles, each with when it can be called (Unix µs); None if all can."""
        now_us = self._clock.now_us()
        failed, busy = dict[str, int](), dict[str, int]()
        for profile in profiles:
            if until_us := self._breakers.open_until_us((tenant, "model", profile.pin), now_us):
                failed[profile.pin] = until_us
            elif (free_us := self._busy_until_us(tenant, profile, now_us)) is not None:
                busy[profile.pin] = free_us
        result = {"failed": failed, "busy": busy}
        return {name: times for name, times in result.items() if times} or None

    def _busy_until_us(self, tenant: str, profile: ModelProfile, now_us: int) -> int | None:
        key = (tenant, profile.pin)
        if profile.max_concurrent is not None and self._running_counts.get(key, 0) >= profile.max_concurrent:
            return now_us
        if profile.calls_per_minute is None:
            return None
        start_times = self._start_times.setdefault(key, deque())
        while start_times and now_us - start_times[0] >= MINUTE_US:
            start_times.popleft()
        return start_times[0] + MINUTE_US if len(start_times) >= profile.calls_per_minute else None

    async def counted(
        self, profiles: Iterable[ModelProfile], texts: Sequence[str]
    ) -> tuple[dict[str, list[int]], list[str]]:
        """Return the number of tokens of each text, by profile, and the profiles whose tokenizer is not installed.

        A profile with the default tokenizer is in neither.
        """
        tokenizers = {profile.pin: profile.tokenizer for profile in profiles if profile.tokenizer != DEFAULT_TOKENIZER}
        counts = dict[str, list[int]]()
        for tokenizer in dict.fromkeys(tokenizers.values()):
            text_counts = [await self._count_tokens(tokenizer, text) if self._count_tokens else None for text in texts]
            usable_counts = [count for count in text_counts if count is not None]
            if len(usable_counts) == len(texts):
                counts[tokenizer] = usable_counts
        tokens = {pin: counts[tokenizer] for pin, tokenizer in tokenizers.items() if tokenizer in counts}
        return tokens, [pin for pin in tokenizers if pin not in tokens]

    async def send(
        self, tenant: str, call: ModelCall, not_before_us: int = 0, on_text: OnText | None = None
    ) -> ModelReply:
        """Send one call, not before `not_before_us` (Unix microseconds), and return a reply within its time limit."""
        profile, began_us = call.profile, self._clock.now_us()
        deadline_us = began_us + call.timeout_ms * 1_000
        if not_before_us > deadline_us:
            return ModelReply("overloaded", billed=False, detail="it accepts no call before the time of this one ends")
        if not_before_us > began_us:
            await self._pause(not_before_us - began_us)
        left_ms = (deadline_us - self._clock.now_us()) // 1_000
        if left_ms <= 0:
            return ModelReply("timed_out", billed=False, detail="its time was over before it was sent")
        provider = self._providers.get(profile.wire)
        if provider is None:
            extra = f"install `contextos[{profile.wire.partition('_')[0]}]`"
            remedy = "name a `script` in `[models]` of its settings" if profile.wire == "scripted" else extra
            detail = f"this deployment speaks no `{profile.wire}`; {remedy}"
            return ModelReply("unavailable", billed=False, detail=detail)
        try:
            key = self._key_of(profile.credential) if profile.credential is not None else None
        except InvalidInput as error:
            return ModelReply("unauthorized", billed=False, detail=str(error))
        running_key, circuit_key = (tenant, profile.pin), (tenant, "model", profile.pin)
        now_us = self._clock.now_us()
        if self._busy_until_us(tenant, profile, now_us) is not None:
            return ModelReply("overloaded", billed=False, detail="its limit of calls was used up meanwhile")
        circuit, admitted, _ = self._breakers.admit(circuit_key, now_us)
        if not admitted:
            return ModelReply("unavailable", billed=False, detail="its circuit opened meanwhile")
        self._running_counts[running_key] = self._running_counts.get(running_key, 0) + 1
        if profile.calls_per_minute is not None:
            self._start_times.setdefault(running_key, deque()).append(now_us)
        try:
            limited_call = changed(call, key=key, timeout_ms=left_ms, first_token_ms=min(call.first_token_ms, left_ms))
            reply = await self._send_in_time(tenant, provider, limited_call, on_text)
        finally:
            remaining = self._running_counts[running_key] - 1
            if remaining:
                self._running_counts[running_key] = remaining
            else:
                del self._running_counts[running_key]
        self._breakers.report(circuit_key, circuit.changes, self._clock.now_us(), answer=reply.outcome not in FAILED)
        return reply

    async def _send_in_time(
        self, tenant: str, provider: ModelProvider, call: ModelCall, on_text: OnText | None
    ) -> ModelReply:
        report = reporter(self._report_fault, tenant, call.profile)
        try:
            return await self._concurrency.within(
                call.timeout_ms, lambda: provider_reply(provider, call, on_text, report)
            )
        except TimeoutError:
            return ModelReply("timed_out", detail=f"it did not answer in {call.timeout_ms} ms")
        except ForeignExit as error:
            raised = error.__cause__ or error
            report(raised)
            return ModelReply("unavailable", detail=f"its provider has a defect: it raised `{type(raised).__name__}`")
