"""`models`: list the published models, add up what they cost, and call one to learn whether it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from contextos.cli.acting import ActKeyOption, ByOption, named_actor
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    usage_error,
    with_context,
    with_read_context,
)
from contextos.cli.layout import folded
from contextos.cli.terminal import DECIDED, REFUSED, Heading, print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.instants import TIME_FORM, unix_us

if TYPE_CHECKING:
    from contextos.deployment.queries.model_costs import CostsOfRuns
    from contextos.service.operations.models import ModelCheckDocument, ModelCostDocument, PublishedModel

ProfileArgument = Annotated[
    str, typer.Argument(metavar="REF", help="A published model profile, such as `model.fast@1.0.0`.")
]
FromOption = Annotated[str, typer.Option("--from", metavar="TIME", help="Only runs that began at this time or later.")]
BeforeOption = Annotated[str, typer.Option("--before", metavar="TIME", help="Only runs that began before this time.")]
MAX_CHECK_CENTS: Final = 5
"""The most that a check can cost unless the operator says otherwise, in US cents."""


def models_list_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most this many.")] = 50,
    cursor: Annotated[str, typer.Option("--cursor", help="Continue where the list before ended.")] = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the published model profiles and routing rules, and the pinned packs that use them."""

    async def operation(context: CommandContext) -> Any:
        from contextos.service.acts import signer_elsewhere
        from contextos.service.operations.models import list_models
        from contextos.service.operations.operation import Asked, Paged

        nobody = signer_elsewhere("")
        return await list_models(Asked(context.app, context.tenant_id, nobody), Paged(limit=limit, cursor=cursor))

    page = with_read_context(workspace, tenant, operation)
    lines = [line for model in page.items for line in _published_lines(model)] or ["no model is published"]
    if page.cursor is not None:
        lines.append(f"more: contextos models list --cursor {page.cursor}")
    print_result(page.to_json(), lines, as_json=as_json)
    return DECIDED


def models_cost_command(
    began_from: FromOption = "",
    began_before: BeforeOption = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Read at most this many runs.")] = 1000,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Add up what calls of models cost, by profile and operation, in the newest runs of a period.

    A run that does not verify is not added up, and the exit code is 3.
    """
    from_us, before_us = _time_us("--from", began_from), _time_us("--before", began_before)

    async def operation(context: CommandContext) -> CostsOfRuns:
        from contextos.deployment.queries.model_costs import read_costs

        ports = context.deployment.ports
        source = (context.store, context.tenant_id, ports.keys, ports.pause)
        return await read_costs(*source, began_from_us=from_us or 0, began_before_us=before_us, limit=limit)

    page = with_read_context(workspace, tenant, operation)
    from contextos.cli.runs.faults import exit_code_of_faults
    from contextos.deployment.queries.model_costs import ERASED_RUN
    from contextos.service.operations.models import cost_documents

    costs = cost_documents(page.costs)
    lines = [*_cost_lines(costs), f"{page.runs_read} runs were read"]
    for run_id, reason in page.unread.items():
        lines += folded("", f"not added up: {run_id}, {displayed(reason)}")
    if page.next_after is not None:
        lines.append("not all runs of the period were read; raise --limit, or name a shorter period")
    unread = [{"run_id": run_id, "reason": displayed(reason)} for run_id, reason in page.unread.items()]
    document = {"costs": [cost.to_json() for cost in costs], "runs_read": page.runs_read, "unread": unread}
    print_result({**document, "complete": page.next_after is None}, lines, as_json=as_json)
    return exit_code_of_faults(None if reason == ERASED_RUN else reason for reason in page.unread.values())


def models_check_command(
    ref: ProfileArgument,
    by: ByOption,
    key: ActKeyOption = None,
    max_cost_cents: Annotated[
        float, typer.Option("--max-cost-cents", min=0, help="Refuse a call that can cost more than this.")
    ] = MAX_CHECK_CENTS,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Call one model with a prompt of one sentence, and print what it reports.

    The call can be billed. It is an act of an operator, and on record before it is sent. The exit code is 1 if the
    model does not answer.
    """
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> ModelCheckDocument:
        from contextos.deployment.acts.models import check_model
        from contextos.service.operations.models import check_document

        target = (context.deployment, context.tenant_id, ref)
        return check_document(await check_model(*target, by=actor, max_cost_cents=max_cost_cents))

    checked = with_context(workspace, tenant, operation)
    print_result(checked.to_json(), _check_lines(checked), as_json=as_json)
    return DECIDED if checked.outcome == "answered" else REFUSED


def _published_lines(model: PublishedModel) -> list[str]:
    if model.kind == "model_profile":
        text = f"{model.wire} {model.model}, up to {model.data_class}, in {', '.join(model.regions)}"
    else:
        text = f"rules for {', '.join(model.operations)}: {', '.join(model.profiles)}"
    users = f"used by {', '.join(model.used_by)}" if model.used_by else "used by no pinned pack"
    state = "withdrawn; " if model.withdrawn else ""
    return [displayed(model.ref), *folded("  ", displayed(text)), *folded("  ", displayed(f"{state}{users}"))]


def _cost_lines(costs: list[ModelCostDocument]) -> list[str]:
    if not costs:
        return ["no model was called"]
    lines: list[str] = [
        Heading(f"{'profile':<28} {'operation':<15} {'calls':>6} {'taken':>6} {'tokens':>9} {'cents':>9}")
    ]
    for cost in costs:
        name, tokens = displayed(cost.profile), sum(cost.tokens.values())
        if len(name) > 28:
            lines.append(name)
            name = ""
        row = f"{name:<28} {cost.operation:<15} {cost.calls:>6} {cost.taken:>6} {tokens:>9}"
        lines.append(f"{row} {cost.cost_usd_cents:>9g}")
        if cost.unpriced or cost.open:
            count = cost.unpriced + cost.open
            lines += folded("  ", f"{count} of these calls count with the cost that was reserved")
    return lines


def _check_lines(checked: ModelCheckDocument) -> list[str]:
    from contextos.contracts.entries.of_model import OUTCOME_TEXTS

    detail = f": {checked.detail}" if checked.detail else ""
    lines = list(folded("", displayed(f"{checked.profile} {OUTCOME_TEXTS[checked.outcome]}{detail}")))
    lines.append(f"after {checked.latency_ms} ms, as {displayed(checked.model) if checked.model else 'no named model'}")
    used = ", ".join(f"{count} {displayed(kind)}" for kind, count in sorted((checked.usage or {}).items()))
    lines.append(f"usage: {used or 'none reported'}")
    upper_limit = f"at most {checked.most_cost_usd_cents:g} US cents"
    lines.append(f"cost: {upper_limit if checked.cost_usd_cents is None else f'{checked.cost_usd_cents:g} US cents'}")
    return lines


def _time_us(option: str, text: str) -> int | None:
    if not text:
        return None
    if (time_us := unix_us(text)) is None:
        detail = f"`{displayed(text[:40])}` of `{option}` is not a time"
        raise usage_error(detail, TIME_FORM)
    return time_us
