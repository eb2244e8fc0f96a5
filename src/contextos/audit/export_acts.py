"""The lines of `control` on which the entries of a run rest, and which an export therefore carries.

They are the acts that account for an erased body, a reopening or a cancel request, the acts that published the run's
pins and put them in force, and the listings of the people who signed. The entries determine these lines, so an export
has each of them, once, and no other. The acts about the decision of an ended run are there too.
Source: docs/reference/export.md, "Lines of control".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

from contextos.contracts.acts import OperatorAct
from contextos.contracts.documents.catalog import ACTIVE_SET_KEY
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.bodies import LISTED_BODIES
from contextos.contracts.entries.reading import environment_of, read_body
from contextos.contracts.journal import CONTROL, Entry
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.control.loading import ACTIVE_POLICIES, pinned_refs
from contextos.deployment.queries.decisions import DecisionView, decision_in
from contextos.deployment.queries.run_view import run_view
from contextos.errors import ChainBroken
from contextos.trust.approvals.acts import read_act
from contextos.trust.approvals.people import counts_between
from contextos.trust.approvals.signers import signers_of
from contextos.trust.journal.entry_acts import DECISION_ACTS, NeededAct, act_in, acts_on_end, explaining


def needed_acts(entries: Sequence[Entry]) -> Iterator[NeededAct]:
    """Yield the acts on which the verified entries of a run rest, in the order of the entries."""
    for index, entry in enumerate(entries):
        yield from explaining(entry)
        if entry.kind == "run.cancel_requested" and not _is_unproved(entries[index + 1 :], entry.key):
            yield NeededAct(entry, entry.run, partial(_cancels, entry=entry), "cancelled the run")
        if entry.kind == "run.pinned" and entry.body is not None:
            try:
                yield from _acts_in_force(entries[0], entry)
            except (LookupError, TypeError, AttributeError):
                raise ChainBroken(entry.run, entry.seq, "pins for a request that no runtime takes") from None


async def acts_of(store: Store, entries: Sequence[Entry], keys: Keys) -> list[Entry]:
    """Return the lines of `control` on which the verified entries of a run rest (the first sealed line for each), and
    the lines about the decision with which the run ended.

    Raises:
        ChainBroken: a line is missing, and the error names the entry that needs it; or a line about the decision is not
            the line that the runtime recorded.
    """
    needed, tenant_id = list(needed_acts(entries)), entries[0].tenant
    lines = await store.lines(CONTROL, *{needed_act.key for needed_act in needed}, entries[0].run)
    end_acts = [(line, read_act(line, keys).act) for line in lines if line.kind in DECISION_ACTS]
    acts = [(line, act) for line in lines if (act := act_in(line, tenant_id, keys))]
    return [*matched_acts(needed, acts), *acts_on_end(entries, end_acts)]


def matched_acts(needed: Iterable[NeededAct], acts: Sequence[tuple[Entry, OperatorAct]]) -> list[Entry]:
    """Return for each needed act the first of these lines that holds it. Raises as `acts_of`."""
    matches = []
    for needed_act in needed:
        match = next((line for line, act in acts if line.key == needed_act.key and needed_act.is_it(act)), None)
        if match is None:
            raise needed_act.missing()
        matches.append(match)
    return matches


async def listings_of(store: Store, entries: Sequence[Entry], acts: Sequence[Entry]) -> list[Entry]:
    """Return the lines of `control` about the directory and the people who signed in a run, or signed these acts, that
    counted at that time. The lines are sealed, as `require_signers` found.
    """
    needed = list(needed_listings([entries], acts))
    return counting_listings(await store.lines(CONTROL, *{listing.key for listing in needed}), needed)


class NeededListing(NamedTuple):
    """The key of lines of `control` that say how somebody is listed, or which directory is used, and the times between
    which something rests on it (Unix microseconds).
    """

    key: str
    since_us: int
    until_us: int


def needed_listings(runs: Iterable[Sequence[Entry]], acts: Iterable[Entry]) -> Iterator[NeededListing]:
    """Yield the listings on which the answers in these runs and these acts rest."""
    for entries in runs:
        for key in signers_of(entries):
            yield NeededListing(key, entries[0].at_us, entries[-1].at_us)
    for act in acts:
        yield NeededListing(act.by, act.at_us, act.at_us)


def counting_listings(lines: Iterable[Entry], needed: Iterable[NeededListing]) -> list[Entry]:
    """Return the lines of `control` that count at one of these times, in their order."""
    listings = [line for line in lines if line.kind in LISTED_BODIES]
    next_at_us: dict[tuple[str, str], int] = {}
    until_us: dict[Entry, float] = {}
    for line in reversed(listings):
        until_us[line] = next_at_us.get((line.kind, line.key), inf)
        next_at_us[line.kind, line.key] = line.at_us
    needed_listings = set(needed)
    return [
        line
        for line in listings
        if any(
            listing.key == line.key and counts_between(line.at_us, until_us[line], listing.since_us, listing.until_us)
            for listing in needed_listings
        )
    ]


def _is_unproved(after: Sequence[Entry], key: str) -> bool:
    """Return whether the run found that no act proves the cancel request before these entries."""
    next_entry = next((entry for entry in after if entry.kind != "run.resumed"), None)
    return next_entry is not None and (next_entry.kind, next_entry.key) == ("run.cancel_unproved", key)


def _cancels(act: OperatorAct, entry: Entry) -> bool:
    if act.kind != "run.cancelled" or act.arguments.get("run") != entry.run:
        return False
    return entry.body is None or read_body(entry) == {"by": act.actor, "reason": act.arguments.get("reason")}


def _acts_in_force(received: Entry, pinned: Entry) -> Iterator[NeededAct]:
    """Yield the acts that published the pins of a run, that put its policies in force, and that allow its request."""
    body = read_body(pinned)
    pins = body.get("pins", {})
    for ref, digest in sorted(pinned_refs(pins).items()):
        yield NeededAct(pinned, ref, partial(_publishes, ref=ref, digest=digest), f"published `{ref}` as `{digest}`")
    if not pins:
        return
    policies = pins.get(ACTIVE_POLICIES)
    if policies != content_address([]):
        effect = f"put the policies `{policies}` in force"
        yield NeededAct(pinned, ACTIVE_SET_KEY, partial(_activates, policies=policies), effect)
    if received.kind != "run.received":
        raise ChainBroken(received.run, 1, "is not the request of the run")
    if received.body is not None:
        received_body = read_body(received)
        request, environment = received_body["request"], environment_of(received_body)
        effect = f"pinned `{body['pack_ref']}` for `{request['input']['intent']}` in `{environment}`"
        yield NeededAct(pinned, ACTIVE_SET_KEY, partial(_allows, request=request, environment=environment), effect)


def _publishes(act: OperatorAct, ref: str, digest: str) -> bool:
    arguments = act.arguments
    return act.kind == "artifact.published" and (arguments.get("ref"), arguments.get("digest")) == (ref, digest)


def _activates(act: OperatorAct, policies: str) -> bool:
    return act.kind == "policies.activated" and content_address(act.arguments.get("policies")) == policies


def _allows(act: OperatorAct, request: Any, environment: str) -> bool:
    arguments = act.arguments
    if act.kind != "packs.pinned" or arguments.get("environment") != environment:
        return False
    refs, intents = arguments.get("refs"), arguments.get("intents")
    return set(refs or ()) == set(request["context_pack_refs"]) and request["input"]["intent"] in (intents or ())


def decision_views(
    streams: Mapping[str, Sequence[Entry]], tenant_id: str, acts: Sequence[tuple[Entry, OperatorAct]]
) -> dict[str, DecisionView]:
    """Return the state of each run's decision after these acts, by run id. Raises `ChainBroken`."""
    views = {}
    for run_id, entries in streams.items():
        try:
            views[run_id] = decision_in(run_view(tenant_id, run_id, entries), acts)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            detail = f"holds what no runtime writes: {type(error).__name__}"
            raise ChainBroken(run_id, len(entries), detail) from None
    return views
