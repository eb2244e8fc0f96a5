"""Models: the published profiles and routing rules, what calls cost, and one call to learn if a model answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, Strict

from contextos.contracts.entries.account import cents
from contextos.contracts.envelopes.evidence import Classification
from contextos.contracts.envelopes.models import ModelOperation, ModelOutcome, ModelProfile, ModelWire, RoutingRules
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.model import MAX_COUNT, Cents, Count, Map, Model
from contextos.control.artifacts import GovernedArtifact
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.acts.models import CheckedModel, check_model
from contextos.deployment.queries.model_costs import ERASED_RUN, CostPlace, ModelCosts, read_costs
from contextos.errors import ApprovalRefused, Integrity
from contextos.service.acts import check_stated_at
from contextos.service.artifacts import CatalogArtifact
from contextos.service.operations.operation import (
    READER_ROLES,
    Asked,
    Operation,
    Paged,
    StatedAt,
    opened_number,
    sealed_cursor,
)
from contextos.service.operations.packs import REF
from contextos.service.pages import MAX_PAGE_ITEMS
from contextos.trust.approvals.assertion import OPERATOR_ROLE

_KINDS: Final = ("model_profile", "routing_rules")
_Moment = Annotated[int, Strict(False), Field(ge=0, le=MAX_COUNT)]


class PublishedModel(Model):
    """A published model profile, or published routing rules. `withdrawn`: no new run uses it. `used_by` are the pinned
    packs that use it: they name rules for an operation, and the rules name profiles.

    A profile has `wire`, `model`, `regions` and `data_class`; rules have `operations` and `profiles`.
    """

    ref: str
    kind: Literal["model_profile", "routing_rules"]
    withdrawn: bool
    used_by: list[str]
    wire: ModelWire | None
    model: str | None
    regions: list[str]
    data_class: Classification | None
    operations: list[ModelOperation]
    profiles: list[str]


class PublishedModelPage(Model):
    """A page of profiles and rules, by reference. `cursor` asks for the next page; null after the last."""

    items: list[PublishedModel]
    cursor: str | None


class CostQuery(Paged):
    """Which runs are added up: the runs that began in the period, newest first, at most `limit` on a page."""

    limit: Annotated[int, Strict(False), Field(ge=1, le=MAX_PAGE_ITEMS, description="The most runs of the page.")] = 50
    began_from: Annotated[_Moment | None, Field(description="Began at this Unix time (µs) or later.")] = None
    began_before: Annotated[_Moment | None, Field(description="Began before this Unix time (µs).")] = None


class ModelCostDocument(Model):
    """The cost of the calls of one profile for one operation in `runs` runs.

    `taken` of the `calls` ended in an answer that was used. `unpriced` calls count with the reserved cost, because no
    usage with a price was reported; so do `open` calls, which have no answer yet. `tokens` are the billed tokens, by
    kind.
    """

    profile: str
    operation: str
    runs: Count
    calls: Count
    taken: Count
    unpriced: Count
    open: Count
    tokens: Map[Count]
    cost_usd_cents: Cents


class UnreadRun(Model):
    """A run of the period that is not added up, and why."""

    run_id: str
    reason: str


class ModelCostPage(Model):
    """The cost of the `runs_read` runs of the page. `unread` are its other runs, whose cost the sums lack. `cursor`
    asks for the next page, whose sums are to be added; null after the last.
    """

    items: list[ModelCostDocument]
    runs_read: Count
    unread: list[UnreadRun]
    cursor: str | None


class ModelCheckDraft(Model):
    """One call of a profile. It is refused if it can cost more than `max_cost_cents`. `at_us` is the current time in
    Unix microseconds; it counts for 15 minutes.
    """

    max_cost_cents: Cents
    at_us: StatedAt


class ModelCheckDocument(Model):
    """The result of one call of a profile. `detail` says why there was no answer.

    `model`, `reply_id` and `usage` are what the provider reported. `cost_usd_cents` follows from the usage; null if no
    usage with a price was reported; the cost is then at most `most_cost_usd_cents`.
    """

    profile: str
    outcome: ModelOutcome
    detail: str
    latency_ms: Count
    model: str
    reply_id: str
    usage: Map[Count] | None
    cost_usd_cents: Cents | None
    most_cost_usd_cents: Cents


async def list_models(asked: Asked, page: Paged) -> PublishedModelPage:
    """List the model profiles and routing rules that are published, with the packs that use them."""
    artifacts = asked.app.artifacts
    published = await artifacts.list(asked.tenant_id, kinds=_KINDS, limit=page.limit, cursor=page.cursor)
    packs = await _packs_by_use(asked)
    items = [await _published_model(asked, item, sorted(packs.get(item.ref, ()))) for item in published.items]
    return PublishedModelPage(items=items, cursor=published.cursor)


async def model_costs(asked: Asked, query: CostQuery) -> ModelCostPage:
    """Add up what calls of models cost in the runs of a period, by profile and operation."""
    list_name = (asked.tenant_id, "model costs", query.began_from, query.began_before)
    ports, after = asked.app.deployment.ports, opened_number(list_name, query.cursor)
    page = await read_costs(
        ports.stores.tenant(asked.tenant_id),
        asked.tenant_id,
        ports.keys,
        ports.pause,
        began_from_us=query.began_from or 0,
        began_before_us=query.began_before,
        limit=query.limit,
        after=after,
    )
    return ModelCostPage(
        items=cost_documents(page.costs),
        runs_read=page.runs_read,
        unread=[UnreadRun(run_id=run_id, reason=reason) for run_id, reason in page.unread.items()],
        cursor=sealed_cursor(list_name, None if page.next_after is None else str(page.next_after)),
    )


async def check(asked: Asked, draft: ModelCheckDraft) -> ActProposal[ModelCheckDocument]:
    """Call a published profile once, with a prompt of one sentence, and say what it reports. It can be billed."""
    check_stated_at(asked.app.deployment, draft.at_us)
    proposal = await check_model.propose(
        asked.app.deployment,
        asked.tenant_id,
        asked.name,
        by=asked.by,
        max_cost_cents=draft.max_cost_cents,
        at_us=draft.at_us,
    )

    async def document(checked: CheckedModel) -> ModelCheckDocument:
        return check_document(checked)

    return proposal.then(document)


def cost_documents(costs: Mapping[CostPlace, ModelCosts]) -> list[ModelCostDocument]:
    """Return the sums as documents, by profile and operation."""
    return [
        ModelCostDocument(
            profile=profile,
            operation=operation,
            runs=sums.runs,
            calls=sums.calls,
            taken=sums.taken,
            unpriced=sums.unpriced,
            open=sums.open,
            tokens=dict(sorted(sums.tokens.items())),
            cost_usd_cents=cents(sums.cost_units),
        )
        for (profile, operation), sums in sorted(costs.items())
    ]


def check_document(checked: CheckedModel) -> ModelCheckDocument:
    """Return the result of a check as a document."""
    reply = checked.reply
    return ModelCheckDocument(
        profile=checked.profile.pin,
        outcome=reply.outcome,
        detail=reply.detail,
        latency_ms=checked.latency_ms,
        model=reply.model,
        reply_id=reply.reply_id,
        usage=None if reply.usage is None else {str(kind): count for kind, count in reply.usage.counts.items()},
        cost_usd_cents=None if checked.cost_units is None else cents(checked.cost_units),
        most_cost_usd_cents=cents(checked.most_cost_units),
    )


async def _packs_by_use(asked: Asked) -> Mapping[str, set[str]]:
    """Return, by the reference of rules or of a profile, the pinned packs that use it."""
    active, packs = await asked.app.artifacts.active(asked.tenant_id), dict[str, set[str]]()
    for ref in active.named():
        pack = await _artifact(asked, ref)
        if not isinstance(pack, ContextPack):
            continue
        for model_use in pack.decision_layer.models:
            packs.setdefault(model_use.rules, set()).add(ref)
            rules = await _artifact(asked, model_use.rules)
            for profile in rules.profiles() if isinstance(rules, RoutingRules) else ():
                packs.setdefault(profile, set()).add(ref)
    return packs


async def _artifact(asked: Asked, ref: str) -> GovernedArtifact | None:
    stored = await asked.app.deployment.catalog(asked.tenant_id).repository.published(ref)
    return None if stored is None else stored.artifact


async def _published_model(asked: Asked, published: CatalogArtifact, used_by: list[str]) -> PublishedModel:
    artifact = await _artifact(asked, published.ref)
    fields: dict[str, Any] = dict.fromkeys(("wire", "model", "data_class"))
    fields |= {"regions": [], "operations": [], "profiles": [], "kind": published.kind}
    if isinstance(artifact, ModelProfile):
        fields |= {"wire": artifact.wire, "model": artifact.model, "data_class": artifact.data_class}
        fields["regions"] = list(artifact.regions)
    elif isinstance(artifact, RoutingRules):
        fields["operations"] = sorted({rule.operation for rule in artifact.rules})
        fields["profiles"] = list(artifact.profiles())
    return PublishedModel(ref=published.ref, withdrawn=published.withdrawn, used_by=used_by, **fields)


MODEL_OPERATIONS: Final = (
    Operation("models.list", ("GET", "/models"), READER_ROLES, Paged, PublishedModelPage, list_models),
    Operation(
        "models.cost",
        ("GET", "/models/cost"),
        READER_ROLES,
        CostQuery,
        ModelCostPage,
        model_costs,
        exit_code=lambda page: Integrity.exit_code if any(unread.reason != ERASED_RUN for unread in page.unread) else 0,
    ),
    Operation(
        "models.check",
        ("POST", "/models/{ref}/check"),
        (OPERATOR_ROLE,),
        ModelCheckDraft,
        ModelCheckDocument,
        check,
        signs="call a model once",
        about=REF,
        exit_code=lambda checked: 0 if checked.outcome == "answered" else ApprovalRefused.exit_code,
    ),
)
