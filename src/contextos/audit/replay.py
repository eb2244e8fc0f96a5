"""Replay: drive the loop of a run from its recorded entries, and compare everything that it derives, byte for byte.

No adapter, directory, graph or clock can be reached. Source: docs/design/journal.md, "Recorded and derived".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from pydantic import ValidationError

from contextos.audit.history import verify_history
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.record import DecisionRecord, ReplayPacket
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.journal import Entry
from contextos.contracts.model import Model
from contextos.deployment.acts.checks import no_run
from contextos.deployment.deployment import Deployment
from contextos.errors import Integrity, InvalidInput, Problem, ReplayMismatch
from contextos.runtime import state_machine
from contextos.runtime.environment import ContextSources, RunEnvironment, RunPorts
from contextos.runtime.loop import invoke_agent
from contextos.runtime.state_machine import transition
from contextos.trust.approvals.signers import require_signers
from contextos.trust.journal.chain import refuse_unknown_semantics, verify_chain
from contextos.trust.journal.entry_acts import refuse_unerased, require_acts
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.record import build_packet
from contextos.trust.journal.signed_heads import verify_heads, verify_indexed

ModelT = TypeVar("ModelT", bound=Model)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay that reached the recorded end of the run. `compared` is the number of its entries, and
    `missing` lists the entries whose bodies were erased and computed again.
    """

    run_id: str
    status: str
    record_hash: str
    compared: int
    missing: tuple[int, ...]


class Unreachable:
    """Takes the place of an external port during a replay. Using any attribute of it raises `Integrity`."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Integrity(f"a replay used `{name}` of an external port; please report this defect of the runtime")


_UNREACHABLE: Final[Any] = Unreachable()
NO_PORTS: Final = RunPorts(_UNREACHABLE, _UNREACHABLE, _UNREACHABLE, _UNREACHABLE, _UNREACHABLE, {}, {})
NO_SOURCES: Final = ContextSources(_UNREACHABLE, _UNREACHABLE, _UNREACHABLE)


async def replay(app: Deployment, tenant_id: str, run_id: str, entries: Sequence[Entry] | None = None) -> ReplayResult:
    """Run the loop again from the recorded entries of a run, and compare everything that it computes with the record.

    No external system is called. `entries` are read from the store if they are None.

    Raises:
        ChainBroken: a body is missing and no signed `entry.erased` accounts for it, which is checked first; or the run
            in the store differs from what the index states.
        InvalidInput: the run has not ended.
        ReplayMismatch: the first entry that differs, or whose erased body cannot be computed.
        UnknownSemantics: the run has a semantics version that this runtime does not know.
    """
    tape = await _read_proved_tape(app, tenant_id, run_id, entries)
    try:
        result = await replay_tape(tape, partial(app.environment, tenant_id))
    except ReplayMismatch:
        _report_replay(app, tenant_id, equal=False)
        raise
    _report_replay(app, tenant_id, equal=True)
    return result


async def derived_context(app: Deployment, tenant_id: str, run_id: str, key: str | None = None) -> CompiledContext:
    """Return the context that a run compiled, with its text and all manifests: the last one, or the context of the
    entry `context.compiled` with this key. It is derived again as in a replay, and equals the digests on record.

    Raises:
        ChainBroken, ReplayMismatch, UnknownSemantics: as `replay`.
        InvalidInput: the run has compiled no such context, or the entry or an entry that it follows from was erased.
    """
    tape = await _read_proved_tape(app, tenant_id, run_id, None)
    matches = [entry for entry in tape if entry.kind == "context.compiled" and key in (None, entry.key)]
    if not matches:
        raise InvalidInput(Problem("", "not_compiled", f"`{run_id}` has compiled no such context"))
    if matches[-1].body is None:
        raise InvalidInput(Problem("", "erased", "its digests were erased, so no text can be compared with them"))

    def stop_at_context(entry_key: str, compiled: dict[str, Any]) -> None:
        if entry_key == matches[-1].key:
            raise _ContextFound(_parse_envelope(CompiledContext, matches[-1].seq, "context.compiled", compiled))

    try:
        await replay_tape(tape, partial(app.environment, tenant_id), stop_at_context)
    except _ContextFound as signal:
        return signal.compiled
    except ReplayMismatch as fault:
        erased = next((entry for entry in tape[: matches[-1].seq] if entry.body is None), None)
        if erased is None:
            raise
        detail = f"entry {erased.seq} (`{erased.kind}`) was erased, so the context cannot be derived again ({fault})"
        raise InvalidInput(Problem("", "erased", detail)) from None
    raise AssertionError("the loop derives every entry of the tape")


class _ContextFound(Exception):
    """A signal to `derived_context`, not an error."""

    def __init__(self, compiled: CompiledContext) -> None:
        self.compiled = compiled


async def _read_proved_tape(
    app: Deployment, tenant_id: str, run_id: str, entries: Sequence[Entry] | None
) -> tuple[Entry, ...]:
    """Return the entries of a run, with what people and operators did checked."""
    store = app.ports.stores.tenant(tenant_id)
    stored = await store.read_run(run_id) if entries is None else None
    tape = tuple(entries or ()) if stored is None else stored.entries
    if not tape:
        raise no_run(run_id)
    await require_acts(store, tape, app.ports.keys)
    await refuse_unerased(store, tape, app.ports.keys)
    await require_signers(store, tape, app.ports.keys)
    if stored is not None:
        verify_indexed(run_id, tape, stored.lines)
        verify_heads(tenant_id, run_id, tape, stored.heads[-1:], app.ports.keys)
    return tape


def _report_replay(app: Deployment, tenant_id: str, *, equal: bool) -> None:
    # Telemetry can be foreign code, and no error of it may change the result.
    with suppress(Exception):
        app.ports.telemetry.run_replayed(tenant_id, equal=equal)


async def replay_tape(
    tape: Sequence[Entry],
    environment_of: Callable[[RunJournal], RunEnvironment],
    at_compiled: Callable[[str, dict[str, Any]], None] | None = None,
) -> ReplayResult:
    """Replay the entries of one run in the environment that `environment_of` builds. `at_compiled` gets each compiled
    context in full; else it is validated. Raises the same errors as `replay`.
    """
    tenant_id, run_id = tape[0].tenant, tape[0].run
    verify_chain(tenant_id, run_id, tape)
    refuse_unknown_semantics(tape)
    if tape[0].body is None:
        raise ReplayMismatch(1, tape[0].kind, "its body was erased, and a recorded answer cannot be derived again")
    received = read_body(tape[0])
    request = parse(InvokeRequest, received["request"])
    journal = RunJournal(tenant_id, run_id, tape, transition, state_machine.START, None)

    def validated(_: str, compiled: dict[str, Any]) -> None:
        _parse_envelope(CompiledContext, len(journal.log()), "context.compiled", compiled)

    environment = replace(
        environment_of(journal), ports=NO_PORTS, sources=NO_SOURCES, planner=None, at_compiled=at_compiled or validated
    )
    try:
        record = await invoke_agent(request, received["request"], received["fingerprint"], environment)
    except ReplayMismatch as mismatch:
        if mismatch.seq > len(tape) and all(entry.kind != "run.ended" for entry in tape):
            # Everything on the tape is as the loop derives it.
            raise InvalidInput(Problem("", "not_ended", f"`{run_id}` has not ended", "replay it when it has")) from None
        raise
    if journal.on_tape:
        raise ReplayMismatch(len(journal.log()) + 1, tape[-1].kind, "the journal continues after the end of the run")
    revised = record
    for entry in journal.log():
        if entry.kind == "record.revised":
            revised = entry.body
            _parse_envelope(DecisionRecord, entry.seq, entry.kind, revised)
        elif entry.kind == "replay.packed":
            _parse_envelope(ReplayPacket, entry.seq, entry.kind, build_packet(revised, request))
    verify_history(run_id, tape)
    return ReplayResult(run_id, record["status"], record["record_hash"], len(tape), tuple(journal.missing))


def _parse_envelope(contract: type[ModelT], seq: int, kind: str, body: Any) -> ModelT:
    """Return an envelope of the run. Raises `ReplayMismatch` if it does not follow its contract in full."""
    try:
        return contract.sealed_from(body)
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        place = pointer(first_error["loc"])
        detail = f"it is not a valid `{contract.__name__}`: `{place}`: {first_error['msg']}"
        raise ReplayMismatch(seq, kind, detail) from None
