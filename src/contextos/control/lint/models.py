"""Lints model profiles, routing rules with their profiles, and the uses of models in a pack.

An entry that no call could use is refused: an endpoint that the tenant does not allow, a candidate that never meets the
limits of its rule, a rule behind another rule that applies to all of its calls, an operation that nothing asks for. A
template is refused, too, if a model would have to see a secret for it.
Source: docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.evidence import CLASSIFICATION_LEVELS
from contextos.contracts.envelopes.models import (
    ASKED_OPERATIONS,
    NEEDED_CAPABILITIES,
    ModelProfile,
    RoutingRule,
    RoutingRules,
)
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.plan import TaskTemplate
from contextos.contracts.facts import nearest_name
from contextos.control.artifacts import GovernedArtifact, MergedArtifacts, ref_of
from contextos.control.lint.graph import BindingTargets, PointerPath, place_of
from contextos.errors import Problem

ModelFault = tuple[str, str]
"""A fault, and its remedy."""


def lint_models(
    artifact: GovernedArtifact, there: Iterable[GovernedArtifact], egress: Collection[str] | None
) -> Iterator[Problem]:
    """Yield the problems of a profile, of routing rules, or of the uses of models in a pack.

    `there` has the profiles and rules that are published or come with the artifact, and `egress` is the tenant's list.
    If `egress` is None, neither is complete: a profile or rule that is missing can exist elsewhere.
    """
    known, complete = {ref_of(one): one for one in there}, egress is not None
    profiles = {ref: one for ref, one in known.items() if isinstance(one, ModelProfile)}
    if isinstance(artifact, ModelProfile) and egress is not None:
        yield from _lint_profile(artifact, egress)
    elif isinstance(artifact, RoutingRules):
        yield from _lint_rules(artifact, profiles, complete)
    elif isinstance(artifact, ContextPack):
        rules = {ref: one for ref, one in known.items() if isinstance(one, RoutingRules)}
        yield from _lint_uses(artifact, rules, profiles, complete)


def _lint_profile(profile: ModelProfile, egress: Collection[str]) -> Iterator[Problem]:
    if profile.egress and not set(profile.egress).intersection(egress):
        reached = profile.egress[0]
        near = nearest_name(reached, egress)
        where = "the tenant's list in `[egress]` of the settings"
        remedy = f"write `{reached}` for `{near}` in {where}" if near else f"add it to {where}"
        detail = f"the profile reaches `{reached}`, which the tenant does not allow"
        yield Problem("/endpoint", "egress_not_allowed", detail, remedy)


def _lint_rules(rules: RoutingRules, profiles: Mapping[str, ModelProfile], complete: bool) -> Iterator[Problem]:
    for index, rule in enumerate(rules.rules):
        at: PointerPath = ("rules", index)
        before = rules.rules[:index]
        if any(one.rule_id == rule.rule_id for one in before):
            detail = f"another rule is called `{rule.rule_id}`"
            yield Problem(pointer((*at, "rule_id")), "duplicate", detail, "give it another name")
        if (first := next((one for one in before if _covers(one, rule)), None)) is not None:
            detail = f"the rule `{first.rule_id}` before it applies to all of its calls"
            remedy = "move it up, or limit the other one in `intents`, `risk_classes` or `data_classes`"
            yield Problem(pointer(at), "never_applies", detail, remedy)
        yield from _lint_candidates(rule, profiles, complete, at)


def _lint_uses(
    pack: ContextPack, rules: Mapping[str, RoutingRules], profiles: Mapping[str, ModelProfile], complete: bool
) -> Iterator[Problem]:
    named = [one.operation for one in pack.decision_layer.models]
    for index, use in enumerate(pack.decision_layer.models):
        at: PointerPath = ("decision_layer", "models", index)
        if use.operation in named[:index]:
            detail = f"`{use.operation}` has an entry before it"
            yield Problem(pointer((*at, "operation")), "duplicate", detail, "keep one of them")
        found = rules.get(use.rules)
        if found is None and complete:
            yield _unpublished(use.rules, "the routing rules", rules, (*at, "rules"))
        elif found is not None and all(one.operation != use.operation for one in found.rules):
            detail = f"`{use.rules}` has no rule for `{use.operation}`, so no model would be found"
            yield Problem(pointer((*at, "rules")), "no_rule", detail, "add one, or name other rules")
        elif found is not None and use.operation == "judge.plan":
            for intent in sorted(
                {one.intent for one in pack.decision_layer.task_templates if one.chosen_by == "model"}
            ):
                if fault := _without_calls(found, intent, profiles):
                    detail = f"a model chooses the calls of `{intent}`, and {fault}"
                    yield Problem(pointer((*at, "rules")), "never_eligible", detail, "name one that has it in the rule")


def _without_calls(rules: RoutingRules, intent: str, profiles: Mapping[str, ModelProfile]) -> str:
    """Return why a run of an intent can find no profile that calls tools, as far as all are known; "" if none can.

    The first rule that applies decides. A rule for every class of the intent leaves nothing to those behind it.
    """
    applies = False
    for rule in rules.rules:
        if rule.operation != "judge.plan" or (rule.intents and intent not in rule.intents):
            continue
        applies = True
        if all(pin in profiles and "tool_calls" not in profiles[pin].capabilities for pin in rule.profiles()):
            return f"no profile of the rule `{rule.rule_id}` has `tool_calls`"
        if not rule.risk_classes and not rule.data_classes:
            break
    return "" if applies else "no rule is for it"


def _covers(one: RoutingRule, other: RoutingRule) -> bool:
    """Return whether a rule applies to each call to which the other one does."""
    lists: Sequence[tuple[Sequence[str], Sequence[str]]] = (
        (one.intents, other.intents),
        (one.risk_classes, other.risk_classes),
        (one.data_classes, other.data_classes),
    )
    return one.operation == other.operation and all(
        not mine or (theirs and set(theirs) <= set(mine)) for mine, theirs in lists
    )


def _lint_candidates(
    rule: RoutingRule, profiles: Mapping[str, ModelProfile], complete: bool, at: PointerPath
) -> Iterator[Problem]:
    named: list[tuple[str, PointerPath]] = [
        (one.profile, (*at, "candidates", index, "profile")) for index, one in enumerate(rule.candidates)
    ]
    for index, (pin, place) in enumerate(named):
        if pin in (other for other, _ in named[:index]):
            yield Problem(pointer(place), "duplicate", f"`{pin}` is a candidate already", "add up the weights in one")
    canary: list[tuple[str, PointerPath]] = [(rule.canary.profile, (*at, "canary", "profile"))] if rule.canary else []
    for pin, place in (*named, *canary):
        profile = profiles.get(pin)
        if profile is None:
            if complete:
                yield _unpublished(pin, "the profile", profiles, place)
        elif (fault := _never_eligible(rule, profile)) is not None:
            yield Problem(pointer(place), "never_eligible", f"`{pin}` {fault[0]}", fault[1])
    known = [profiles[pin] for pin, _ in named if pin in profiles]
    made = {
        (one.wire, one.model, one.dimensions) for pin, _ in (*named, *canary) if (one := profiles.get(pin)) is not None
    }
    if rule.operation == "embed" and len(made) > 1:
        said = sorted(f"{model} of {size} numbers by {wire}" for wire, model, size in made)
        detail = f"its profiles make vectors by {', '.join(said)}"
        remedy = "name profiles of one model and one size: vectors of two models cannot be compared"
        yield Problem(pointer((*at, "candidates")), "two_models", detail, remedy)
    for index, shown in enumerate(rule.data_classes):
        if len(known) == len(named) and not any(one.may_see(shown) for one in known):
            detail = f"no candidate may see what is {shown}"
            remedy = "add a profile with a higher `data_class`, or leave this class out"
            yield Problem(pointer((*at, "data_classes", index)), "no_candidate", detail, remedy)


def _never_eligible(rule: RoutingRule, profile: ModelProfile) -> ModelFault | None:
    """Return why no call to which the rule applies can go to this profile, or None."""
    if profile.embeds and rule.operation != "embed":
        return f"only embeds, and the rule is about `{rule.operation}`", "name another profile"
    needed = NEEDED_CAPABILITIES.get(rule.operation)
    if needed is not None and needed not in profile.capabilities:
        return f"has not the capability `{needed}`, which `{rule.operation}` needs", "name another profile"
    if rule.regions and (beyond := [one for one in profile.regions if one not in rule.regions]):
        return f"can be handled in `{beyond[0]}`, which the rule does not allow", "name another profile, or allow it"
    if rule.min_context_tokens is not None and profile.context_window < rule.min_context_tokens:
        detail = f"has {profile.context_window} tokens of context, and the rule asks for {rule.min_context_tokens}"
        return detail, "name another profile, or lower `min_context_tokens`"
    lowest = min(rule.data_classes, key=CLASSIFICATION_LEVELS.index, default=None)
    if lowest is not None and not profile.may_see(lowest):
        return f"may see {profile.data_class} at most, and the rule is about {lowest}", "name another profile"
    return None


def _unpublished(ref: str, what: str, known: Collection[str], at: PointerPath) -> Problem:
    near = nearest_name(ref, known)
    remedy = "publish it first, with `contextos pack publish`" + (f", or write `{near}`" if near else "")
    return Problem(pointer(at), "not_published", f"{what} `{ref}` is not published or is withdrawn", remedy)


def lint_model_templates(merged: MergedArtifacts, edges: BindingTargets) -> Iterator[Problem]:
    """Yield the problems of the models of a pack by itself, and of the templates whose calls a model chooses."""
    uses, seen = merged.pack.decision_layer.models, set[str]()
    for index, use in enumerate(uses):
        at = pointer(("decision_layer", "models", index, "operation"))
        if use.operation not in ASKED_OPERATIONS:
            detail = f"nothing asks a model for `{use.operation}` in this version"
            yield Problem(at, "not_enforced", detail, f"remove it, or use one of {', '.join(sorted(ASKED_OPERATIONS))}")
        if use.operation in ("judge.verify", "judge.score") and not use.prompt_fragment.strip():
            detail = f"`{use.operation}` judges by a rubric, and `prompt_fragment` is empty"
            place = pointer(("decision_layer", "models", index, "prompt_fragment"))
            yield Problem(place, "no_rubric", detail, "write there what speaks against a plan or a run")
        seen.add(use.operation)
    own = merged.pack.decision_layer.task_templates
    for template in merged.templates.values():
        if template.chosen_by == "model":
            here = place_of(template, template.template_id, own, "task_templates")
            yield from _chosen_by_model(template, here, seen, edges)


def _chosen_by_model(
    template: TaskTemplate, at: PointerPath, asked: set[str], edges: BindingTargets
) -> Iterator[Problem]:
    if "judge.plan" not in asked:
        detail = f"a model chooses the calls of `{template.template_id}`, and the pack names none for `judge.plan`"
        yield Problem(pointer((*at, "chosen_by")), "no_model", detail, "add `judge.plan` to `decision_layer.models`")
    for index, step in enumerate(template.steps):
        declared = edges.capability(step.tool)
        for name in declared.secrets if declared is not None else ():
            detail = f"`{name}` is a secret of `{step.tool}`, and a model would have to be shown it"
            remedy = "take the tool out of the template, or let a program choose the calls (`chosen_by` `agent`)"
            yield Problem(pointer((*at, "steps", index, "tool")), "secret_shown", detail, remedy)
