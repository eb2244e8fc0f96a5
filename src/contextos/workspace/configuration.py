"""Finds what is configured and cannot be in force: in the settings, and in the packs and policies of each tenant."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final

from contextos.contracts.acts import PackPin
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.facts import name_remedy
from contextos.deployment.acts.act import Actor, ActProposal
from contextos.deployment.acts.governance import activate_policies, pin_packs
from contextos.deployment.acts.unmatched_rules import intents_beside, packs_of, pinned_packs
from contextos.deployment.deployment import Deployment
from contextos.errors import ContextOSError, InvalidArtifact, InvalidSettings, OtherEnvironment, Problem, Unavailable
from contextos.files import read_regular_file
from contextos.workspace.settings import DEFAULT_PACKS, MAX_SETTINGS_BYTES, SETTINGS_FILE, Settings
from contextos.workspace.settings.reading import setting_lines, with_line

_LOG: Final = logging.getLogger("contextos.workspace")
SETTINGS: Final = "contextos.toml"
CHECK_AGAIN_US: Final = 60_000_000
"""Age of the last check, in microseconds, after which a question about readiness starts another one."""

_TENANT_SETTINGS: Final = frozenset({"tenant", "tenants", "egress", "redaction", "places"})
"""The names of settings whose value is a tenant, a list of tenants, or a table by tenant, in any table."""

Found = tuple[str, Problem]
"""A problem and its place: the name for the settings, or the ref of an artifact, comes first."""


@dataclass(slots=True)
class Configuration:
    """Checks what a deployment is configured with, against all that it knows. `listed` are its tenants, or None."""

    settings: Settings
    deployment: Deployment
    listed: Callable[[], Sequence[str] | None]
    found: tuple[Found, ...] = ()
    _checked_at_us: int | None = None
    _check_task: asyncio.Task[None] | None = field(default=None, repr=False)

    async def of_tenant(self, tenant_id: str) -> list[Found]:
        """Return what in a tenant's packs and policies cannot be in force, or why that is not known now."""
        from contextos.packs.checking import problems_in_force

        try:
            return await problems_in_force(self.deployment, tenant_id)
        except ContextOSError as error:
            return [(tenant_id, Problem("", "not_checked", f"it was not checked: {error}", "look again"))]

    async def before_pins(self, tenant_id: str, coming: Iterable[object]) -> list[Found]:
        """Return which agents are stopped once the packs among `coming` are pinned. This method pins nothing."""
        packs = [artifact for artifact in coming if isinstance(artifact, ContextPack)]
        return [(tenant_id, problem) for problem in await intents_beside(self.deployment, tenant_id, packs)]

    async def propose_pin(
        self,
        tenant_id: str,
        pin: PackPin,
        *,
        expected: int,
        by: Actor,
        before: Callable[[list[Found]], None] | None = None,
    ) -> ActProposal[None]:
        """Return the proposal to pin published packs (`pin_packs`), unless lint refuses them with all that the
        deployment knows. `before` gets the agents that the pin stops; without it the log says so.

        Every way to pin a pack calls this. `of_tenant` reports the versions that stay pinned beside the new one.

        Raises:
            InvalidArtifact: lint refuses an artifact of the pin. The errors of `pin_packs` are raised too.
        """
        from contextos.packs.checking import require_lint_of_pin

        await require_lint_of_pin(self.deployment, tenant_id, pin)
        packs = [pack for pack, _ in await packs_of(self.deployment.catalog(tenant_id), pin)]
        (before or log_found)(await self.before_pins(tenant_id, packs))
        return await pin_packs.propose(self.deployment, tenant_id, pin, expected=expected, by=by)

    def require_settings_allow(self, level_refs: Iterable[tuple[Level, str]]) -> None:
        """Refuse a set of policies that is not the set of the settings: the next start would refuse the store.

        Raises:
            InvalidArtifact: the settings name policies, and `level_refs` are other ones.
        """
        configured = self.settings.policies
        if configured is not None and set(configured) != set(level_refs):
            detail = "the settings of this deployment name its policies, and these are others"
            remedy = "change the settings, and use `contextos policies`"
            raise InvalidArtifact(Problem("/policies", "policies_differ", detail, remedy))

    async def propose_policies(
        self, tenant_id: str, level_refs: Sequence[tuple[Level, str]], *, expected: int, by: Actor
    ) -> ActProposal[None]:
        """Return the proposal to put exactly these policies in force (`activate_policies`), unless lint refuses a new
        one, or refuses a pack in force together with these policies. Raises as `propose_pin`.
        """
        from contextos.packs.checking import require_lint_of_policies

        await require_lint_of_policies(self.deployment, tenant_id, level_refs)
        return await activate_policies.propose(self.deployment, tenant_id, level_refs, expected=expected, by=by)

    def require_tenants(self) -> None:
        """Refuse settings for a tenant that the directory does not list. Raises `InvalidSettings`."""
        with suppress(Unavailable):
            if unknown := tuple(self._unknown_tenant_problems()):
                raise InvalidSettings(*self._with_lines(unknown))

    def of_settings(self) -> Iterator[Problem]:
        """Yield a problem for each unknown name in the settings. Raises `Unavailable` for an unreadable directory."""
        for index, folder in enumerate(self.settings.packs):
            if self.settings.packs != DEFAULT_PACKS and not (self.settings.workspace / folder).is_dir():
                detail = f"there is no folder `{folder}` in the workspace, so nothing of it is published"
                yield Problem(pointer(("packs", index)), "no_folder", detail, "correct its name, or make it")
        yield from self._unknown_tenant_problems()

    def _with_lines(self, problems: Sequence[Problem]) -> Sequence[Problem]:
        """Return problems of settings, with their lines if the settings equal the settings file."""
        lines = dict[tuple[str, ...], int]()
        with suppress(OSError, UnicodeDecodeError, ContextOSError):
            if Settings.read(self.settings.workspace) == self.settings:
                file = self.settings.workspace / SETTINGS_FILE
                lines = setting_lines(read_regular_file(file, MAX_SETTINGS_BYTES).decode())
        paths = (tuple(problem.pointer.split("/")[1:]) for problem in problems)
        return [with_line(problem, lines.get(path, 0)) for problem, path in zip(problems, paths, strict=True)]

    def _unknown_tenant_problems(self) -> Iterator[Problem]:
        if (tenants := self.listed()) is None:
            return
        for place, tenant_id in _named_tenants(self.settings):
            if tenant_id not in tenants:
                detail = f"the directory has no tenant `{tenant_id}`, so this is in force for nobody"
                remedy = name_remedy(tenant_id, tenants) if tenants else "add it to the directory"
                yield Problem(pointer(place), "no_tenant", detail, remedy)

    async def check(self) -> tuple[Found, ...]:
        """Check everything, and keep the findings for `latest`. Raises `Unavailable`; earlier findings then stay."""
        self._checked_at_us = self.deployment.ports.clock.now_us()
        findings: list[Found] = [(SETTINGS, problem) for problem in self.of_settings()]
        observing = set(self.settings.observed_packs)
        tenants = self.listed()
        for tenant_id in tenants or ():
            findings += await self.of_tenant(tenant_id)
            with suppress(OtherEnvironment):  # which `of_tenant` found too
                observing -= {pack.pack_meta.pack_id for pack, _ in await pinned_packs(self.deployment, tenant_id)}
        if tenants is not None:
            findings += [(SETTINGS, _unpinned_problem(name)) for name in sorted(observing)]
        self.found = tuple(findings)
        return self.found

    def latest(self) -> tuple[Found, ...]:
        """Return what the last check found. If it is older than a minute, another check starts meanwhile."""
        now_us = self.deployment.ports.clock.now_us()
        if self._checked_at_us is None or now_us - self._checked_at_us >= CHECK_AGAIN_US:
            self._checked_at_us = now_us
            self._check_task = asyncio.create_task(self._check_later())
        return self.found

    async def _check_later(self) -> None:
        try:
            await self.check()
        except Unavailable:
            pass
        except ContextOSError as error:
            # The earlier findings are no longer an answer.
            self.found = ((SETTINGS, Problem("", "not_checked", f"it was not checked: {error}", "look again")),)


def log_found(found: Iterable[Found]) -> None:
    """Log what is configured and cannot be in force."""
    for place, problem in found:
        _LOG.warning("configuration", extra={"where": place, "problem": str(problem)})


def _named_tenants(setting: Any, parent: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield each tenant that the settings name, with its place: a text, one of a list, or the key of a table."""
    for member in fields(setting):
        value, place = getattr(setting, member.name), (*parent, member.name)
        if member.name in _TENANT_SETTINGS:
            items = enumerate(value) if isinstance(value, tuple) else zip(value, value, strict=True)
            yield from [(place, value)] if isinstance(value, str) else (((*place, key), name) for key, name in items)
        elif isinstance(value, tuple):
            for number, inner in enumerate(value):
                yield from _named_tenants(inner, (*place, number)) if is_dataclass(inner) else ()
        elif is_dataclass(value):
            yield from _named_tenants(value, place)


def _unpinned_problem(pack_id: str) -> Problem:
    detail = f"no pack `{pack_id}` is pinned in any tenant, so nothing of it is observed"
    return Problem(pointer(("observed_packs",)), "no_pack", detail, "correct its id, or leave it out")
