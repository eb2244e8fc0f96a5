"""`App`: a running deployment with its storage, keys and engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from contextos.action.foreign_code import describe_adapter
from contextos.adapters.key_files import KeyFiles
from contextos.adapters.oidc_directory import OidcDirectory, SignedIn
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import AgentIdentity, UserClaims
from contextos.contracts.envelopes.run import InvokeRequest, RuntimeHints
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Stores
from contextos.contracts.trace import TraceContext, begun_trace, continued_trace
from contextos.control.artifacts import MODELS
from contextos.deployment.acts.act import Actor
from contextos.deployment.acts.governance import initialise_tenant, publish_artifact
from contextos.deployment.deployment import Deployment, DrivenRun
from contextos.deployment.gate.gate import Gate
from contextos.deployment.gate.opening import only, open_session
from contextos.deployment.ports import NoTelemetry
from contextos.deployment.queries.run_events import RunEventName
from contextos.deployment.witness import WitnessPublisher
from contextos.errors import InvalidArtifact, InvalidInput, InvalidSettings, OtherEnvironment, Problem
from contextos.runtime.admission import parsed_request
from contextos.service.approvals import ApprovalQuestions
from contextos.service.artifacts import PublishedArtifacts
from contextos.service.facts import Facts
from contextos.service.passkeys import Passkeys
from contextos.service.runs import Runs
from contextos.service.slot_questions import SlotQuestions
from contextos.service.subscriptions import Handler, Subscriber
from contextos.trust.identity.refusals import logged_refusal
from contextos.trust.seal import open_sealed
from contextos.workspace.artifact_files import (
    MAX_ARTIFACT_BYTES,
    UnsignedArtifact,
    signed_artifacts,
    unsigned_artifacts,
)
from contextos.workspace.configuration import Configuration, Found, log_found
from contextos.workspace.engine.event_delivery import EventDelivery
from contextos.workspace.engine.failure_tracker import OnFailure
from contextos.workspace.engine.lease_owner import LeasedOwner, Owner
from contextos.workspace.engine.local import LocalEngine
from contextos.workspace.engine.request_streams import Driven, RequestStream, open_request_stream
from contextos.workspace.engine.resume import PATIENCE_S, drive_due_runs
from contextos.workspace.engine.run_watch import RunWatch
from contextos.workspace.engines import local_engine, worker_engine
from contextos.workspace.logins.bearer import BearerTokens, tokens_bound_to
from contextos.workspace.logins.browser_logins import BrowserLogins, browser_logins_of
from contextos.workspace.settings import Settings
from contextos.workspace.settings.reading import invalid_setting
from contextos.workspace.telemetry import DeferredTelemetry

if TYPE_CHECKING:
    from contextos.packs.building import DeclaredPack
    from contextos.workspace.engine.shared import SharedEngine

DRIVEN_GRACE_S: Final = 30
"""The longest time in seconds that closing a deployment or its server waits for streamed requests being driven."""
_LOG: Final = logging.getLogger("contextos.workspace")


@dataclass(slots=True)
class App:
    """A running deployment. Use `deployment` to send requests, and `gate` for an agent that chooses its own calls.

    `engine` drives due runs in this process once it is started; `contextos.open` starts and stops it. `keys` are the
    keys of the runtime. `stores` is the storage of all tenants. `owned` are adapters that `close` closes. `delivery`
    calls the handlers of `on`; `contextos.open` stops it. `shared_credentials` are the ids of the adapters whose
    credentials serve every tenant, as the settings say. `configuration` finds settings, packs and policies that cannot
    be in force. `watch` passes the events of runs on to the readers of streams. `driving` has the streamed requests
    that are being driven.
    """

    settings: Settings
    deployment: Deployment
    stores: Stores
    owner: Owner | LeasedOwner
    engine: LocalEngine | SharedEngine
    keys: Keys
    witness_publisher: WitnessPublisher | None
    watch: RunWatch
    owned: tuple[Any, ...] = ()
    delivery: EventDelivery = field(default_factory=EventDelivery)
    shared_credentials: tuple[str, ...] = ()
    driving: set[Driven] = field(default_factory=set)
    configuration: Configuration = field(init=False)

    def __post_init__(self) -> None:
        self.configuration = Configuration(self.settings, self.deployment, self.listed_tenants)

    async def gate(
        self,
        *,
        session: str,
        user: str | UserClaims,
        agent: str | AgentIdentity,
        token: str | None = None,
        tenant: str | None = None,
        intent: str | None = None,
        pack: str | None = None,
        message: str = "",
        context: Mapping[str, Any] | None = None,
        tools: Sequence[str] | None = None,
        hints: RuntimeHints | None = None,
        trace: TraceContext | None = None,
    ) -> Gate:
        """Open the session of an agent that chooses its own calls, or find it by its name, as `open_session` does.

        `tenant` can be left out where the directory lists only one.
        """
        return await open_session(
            self.deployment,
            tenant or only("tenant", "the directory has", self.tenants()),
            session,
            user=user,
            agent=agent,
            token=token,
            intent=intent,
            pack=pack,
            message=message,
            context=context,
            tools=tools,
            hints=hints,
            trace=trace,
        )

    async def stream(self, request: bytes | str | Mapping[str, Any]) -> RequestStream:
        """Send a request of the mode `stream`, and return the events of its run, which is driven meanwhile.

        Raises as `Deployment.invoke`, and `InvalidInput` for another mode.
        """
        parsed = parsed_request(request)
        if parsed.mode != "stream":
            remedy = "write `stream`, or send it with `deployment.invoke`"
            raise InvalidInput(Problem("/mode", "not_a_stream", f"the mode is `{parsed.mode}`", remedy))
        return await self.drive_watched(parsed)

    async def drive_watched(self, request: InvokeRequest) -> RequestStream:
        """Send a request in any mode, as `stream` does. The request is one that `Deployment.invoke_parsed` takes."""
        return await open_request_stream(self.deployment, self.watch, request, self.driving)

    async def wait_for_driven(self) -> None:
        """Wait until the streamed requests were driven, `DRIVEN_GRACE_S` seconds at most. They are driven also after
        their readers have gone away. A later start takes over the requests that are left.
        """
        if self.driving:
            await asyncio.wait(set(self.driving), timeout=DRIVEN_GRACE_S)

    @property
    def lacks_witness(self) -> bool:
        """Whether this is a service without a witness: nobody would notice that the end of a stream was cut off."""
        return self.settings.profile == "service" and self.witness_publisher is None

    @property
    def shares_collector(self) -> bool:
        """Whether one collector gets the traces, events and metrics of several tenants: the collector of the setting
        `telemetry`, or the telemetry that the program brought.
        """
        telemetry = self.deployment.ports.telemetry
        if isinstance(telemetry, DeferredTelemetry):
            return bool(self.settings.telemetry and self.settings.telemetry.otlp_url)
        return not isinstance(telemetry, NoTelemetry)

    def trace_of(self, received: TraceContext | None, *, is_workload: bool) -> TraceContext:
        """Return the trace of the run that a caller over HTTP or MCP asks for. `received` is the trace that they name.

        The run continues `received`. If there is none, or if `traces_from` allows only workloads to name one and the
        caller is not one, a new trace starts, with a link to `received`. No decision depends on a trace id.
        """
        if received is not None and (is_workload or self.settings.traces_from == "callers"):
            return continued_trace(received, trusted=is_workload)
        entropy = self.deployment.ports.entropy
        return begun_trace(entropy.take(16).hex(), entropy.take(8).hex(), received)

    def listed_tenants(self) -> tuple[str, ...] | None:
        """Return the tenants that the directory lists, sorted; None without a list, which the port does not require."""
        list_tenants = getattr(self.deployment.ports.directory, "tenants", None)
        return None if list_tenants is None else tuple(sorted(list_tenants()))

    def tenants(self) -> tuple[str, ...]:
        """Return the tenants that the directory lists, sorted.

        Raises:
            InvalidSettings: the directory has no method `tenants`, which the port does not require.
        """
        tenants = self.listed_tenants()
        if tenants is None:
            detail = "the directory lists no tenants, so nothing can be done in each of them"
            raise invalid_setting("/directory", "no_tenants", detail, "give it a method `tenants`, or name one tenant")
        return tenants

    async def sign_in(self, tenant_id: str, token: str, *, agent_id: str, session: str = "") -> SignedIn:
        """Verify the OIDC token of a user, who delegates to the agent `agent_id`. The directory then knows the user
        until the token expires. A request of the user names the `token_ref` that is returned. With `session`, a later
        token of the user renews the delegation of their session of this name.

        Raises:
            InvalidSettings: the directory takes no tokens.
            InvalidInput: the delegation of the session has scopes that the token does not have.
            SignatureInvalid: the token is refused, or names nobody with a role here.
            NotFound: the directory has no such tenant or agent.
            Unavailable: the issuer or the store does not answer.
        """
        directory = self.deployment.ports.directory
        if not isinstance(directory, OidcDirectory):
            detail = "the directory takes no tokens"
            raise invalid_setting("/directory", "no_tokens", detail, 'write `kind = "oidc"` in `[directory]`')
        with logged_refusal(token):
            return await directory.sign_in(tenant_id, token, agent_id=agent_id, session=session)

    def prometheus_text(self, tenant_id: str | None = None) -> bytes | None:
        """Return the metrics of this process in the text format of Prometheus (UTF-8), for a `/metrics` route; None
        without the setting `telemetry`. With `tenant_id`, return only the metrics of this tenant. Never waits; any
        thread can call it.
        """
        text = getattr(self.deployment.ports.telemetry, "prometheus_text", None)
        return None if text is None else bytes(text(tenant_id))

    def bearer_tokens(self, *, bound_to: str) -> BearerTokens:
        """Return the verifier of bearer tokens for a deployment that is served at the host `bound_to`, such as
        `127.0.0.1`.

        Raises:
            InvalidSettings: no issuer of tokens counts here, so nobody could call; or the program brings its own
                directory.
        """
        return tokens_bound_to(self.settings, self.deployment.ports, bound_to)

    def browser_logins(self, tokens: BearerTokens) -> BrowserLogins | None:
        """Return the logins and sessions of browsers; None where the settings have no `browser_logins`. `tokens`
        verifies the tokens of their users.

        Raises:
            InvalidSettings: the program brings its own directory, the client's secret is not there, an address is not
                valid, or the extra `http` is not installed.
        """
        return browser_logins_of(self.settings, self.deployment.ports, self.stores, tokens)

    def key_files(self) -> KeyFiles:
        """Return the keys of the runtime as key files. Raises `InvalidSettings` if they are not kept in files."""
        if not isinstance(self.keys, KeyFiles):
            detail = "the keys of this deployment are not files of it"
            raise invalid_setting("/keys", "no_key_files", detail, "list and rotate them where they are kept")
        return self.keys

    def worker(self, on_failure: OnFailure | None = None, *, drives: bool = True) -> LocalEngine | SharedEngine:
        """Return the engine of a worker process, which drives every due run. On PostgreSQL workers share the runs.

        Without `drives` the engine takes no runs, and leaves them to workers elsewhere. It still sends signs of life of
        this process, so that workers take over the runs that a killed process was driving, and publishes heads to the
        witness. `on_failure` is called when a run cannot be driven; the failure is logged too.
        """
        app_parts = (self.deployment, self.settings, self.owner, self.witness_publisher)
        return worker_engine(*app_parts, on_failure, drives=drives)

    @property
    def runs(self) -> Runs:
        """The runs of the deployment: lists, single runs, timelines, and events that a reader can resume."""
        return Runs(self.deployment, self.watch)

    @property
    def approvals(self) -> ApprovalQuestions:
        """The open questions to people, the statements that an answer signs, and the answers."""
        return ApprovalQuestions(self.deployment)

    @property
    def artifacts(self) -> PublishedArtifacts:
        """The artifacts that are published in a tenant, and which of them are active."""
        return PublishedArtifacts(self.deployment)

    @property
    def passkeys(self) -> Passkeys:
        """The passkeys that approvers register, for the keeper of the directory."""
        return Passkeys(self.deployment)

    @property
    def slot_questions(self) -> SlotQuestions:
        """The selections that paused flows ask of people, and their answers."""
        return SlotQuestions(self.deployment)

    @property
    def facts(self) -> Facts:
        """The facts of the tenants: set, replace, retract and get, each write with its source and its writer."""
        return Facts(self.deployment)

    async def on(
        self, event: RunEventName | tuple[RunEventName, ...], handler: Handler, *, name: str, tenant_id: str
    ) -> None:
        """Call `handler` with each of these events of the tenant's runs from now on, at least once, in order per run.

        `name` names the subscriber for ever: after a crash, delivery goes on where it was. If several processes use
        the same name, one of them delivers at a time. A handler that raises, or takes longer than 30 s, is called again
        after waits from 1 s to 5 min. Meanwhile the later events of the same run wait, and no others.

        Raises:
            InvalidInput: an event, the name or the handler is not valid; or the name is used for other events.
            NotFound: the directory has no such tenant.
            Unavailable: the store or the directory does not answer; nothing was registered.
        """
        events = event if isinstance(event, tuple) else (event,)
        await self.delivery.begin(Subscriber(self.deployment, tenant_id, name, events, handler))

    async def publish(self, envelope: dict[str, Any], *, by: Actor) -> str:
        """Publish one signed artifact in the tenant that it names, and return that tenant.

        `envelope` is a DSSE envelope, as `seal` makes it with the purpose `pack`. `by` is the person who publishes the
        artifact and signs for it: they cannot approve runs of their pack. Publishing a version again changes nothing.

        Raises:
            InvalidArtifact: lint refuses the artifact, it names no tenant, or its version has other content already.
            SignatureInvalid: no trusted key signed the envelope.
            ApprovalRefused: the identity of the actor is not proved, or they do not have the role `publisher`.
        """
        tenant_id = self.tenant_named(envelope)
        if tenant_id is None:
            remedy = "publish it in each tenant, by its name"
            raise InvalidArtifact(Problem("/tenant", "no_tenant", "it belongs to the platform", remedy))
        await publish_artifact(self.deployment, tenant_id, envelope, by=by)
        return tenant_id

    async def install(self, pack: DeclaredPack, *, by: Actor, keep: bool = False) -> list[str]:
        """Sign the expansion of a declared pack with the runtime's own key, publish it, and pin it for its intents.

        For development, and wherever the runtime holds the key for packs. In the profile `service` the runtime signs no
        pack: the author does (`contextos pack sign`). The deployment must have the adapters of the pack already. The
        pins of the pack's other versions end, unless `keep` is true; the log names the versions that requests can still
        choose. Returns sentences that say what was done; a repeated call does nothing.

        Raises:
            InvalidArtifact: the deployment lacks a tool of the pack, lint refuses the pack with all that the deployment
                knows, or its version has other content already.
            InvalidSettings: the runtime holds no key for packs, or is a `service`.
            ApprovalRefused: the actor is not proved, or has not the roles `publisher` and `policy_admin`.
        """
        from contextos.packs.checking import require_lint

        tenant_id = pack.expansion.pack.pack_meta.tenant
        adapters = self.deployment.ports.adapters(tenant_id)
        for adapter in pack.adapters:
            definition = adapter.describe()
            if definition.adapter_id not in adapters or adapters[definition.adapter_id].describe() != definition:
                detail = f"this deployment has no adapter `{definition.adapter_id}` with the tools of the pack"
                remedy = "give it to `contextos.open` in `adapters`, or name it in the settings"
                raise InvalidArtifact(Problem("/tooling_layer/adapter_registry", "no_such_adapter", detail, remedy))
        signed = [UnsignedArtifact.of(pack.expansion).signed(self.settings, self.keys)]
        await require_lint(self.deployment, tenant_id, signed, declared=[pack.expansion], keep=keep)
        log_found(await self.configuration.before_pins(tenant_id, [pack.expansion.pack]))
        sentences = await initialise_tenant(self.deployment, tenant_id, signed, (), by=by, keep=keep)
        await self._log_findings(tenant_id, sentences)
        return sentences

    def tenant_named(self, envelope: dict[str, Any]) -> str | None:
        """Return the tenant that a signed artifact names, or None for the platform. Raises `SignatureInvalid`."""
        artifact = loads(open_sealed(envelope, self.keys, "pack", MODELS), max_bytes=MAX_ARTIFACT_BYTES)
        meta = artifact.get("pack_meta", artifact) if isinstance(artifact, dict) else {}
        tenant_id = meta.get("tenant") if isinstance(meta, dict) else None
        return tenant_id if isinstance(tenant_id, str) else None

    async def initialise(
        self, tenant_id: str, *, by: Actor, keep: bool = False, before: Callable[[list[Found]], None] = log_found
    ) -> list[str]:
        """Publish the artifacts of the workspace in a tenant, put the policies of the settings in force, and pin the
        packs.

        Signed artifacts are `*.json`. A `*.yaml` is the short form of a pack, or a profile or routing rules of models:
        the runtime's own key signs it, a short form as expanded for the tools of the deployment. In the profile
        `service` the runtime signs nothing: the expansion of each short form is among the signed artifacts. Returns
        sentences that say what was done. Steps that are done already are left out, so a repeated call does nothing.
        Policies in force never change here. The newest version of each pack is pinned, and the pins of its other
        versions end, unless `keep` is true. Before anything is published, `before` gets the agents that the new pins
        stop.

        Raises:
            InvalidArtifact: lint refuses a pack, a policy bundle or a catalog with all that the deployment knows, and
                nothing was published.
            InvalidSettings: the settings name an artifact that is not there, or other policies are in force than they
                name; or the runtime holds no key to sign a short form, or is a `service`.
            SignatureInvalid: no trusted key signed an artifact.
            ApprovalRefused: the actor is not proved, or has not the roles `publisher` and `policy_admin`.
        """
        from contextos.packs.checking import require_lint, require_tenants

        settings = self.settings
        if problems := tuple(self.configuration.of_settings()):
            raise InvalidSettings(*problems)
        envelopes = signed_artifacts(settings)
        signed = [envelope for envelope in envelopes if self.tenant_named(envelope) in (None, tenant_id)]
        payloads = {open_sealed(envelope, self.keys, "pack", MODELS) for envelope in signed}
        files = list(unsigned_artifacts(settings, partial(self._definitions, tenant_id)))
        require_tenants([*map(self.tenant_named, envelopes), *(file.tenant for file in files)], self.listed_tenants())
        own_files = [file for file in files if file.tenant == tenant_id]
        signed += [file.signed(settings, self.keys) for file in own_files if canonical(file.document) not in payloads]
        declared = [file.expansion for file in own_files if file.expansion is not None]
        policies = settings.policies or ()
        await require_lint(self.deployment, tenant_id, signed, declared=declared, policies=policies, keep=keep)
        before(await self.configuration.before_pins(tenant_id, map(self.deployment.catalog(tenant_id).opened, signed)))
        sentences = await initialise_tenant(self.deployment, tenant_id, signed, policies, by=by, keep=keep)
        await self._log_findings(tenant_id, sentences)
        await self.check_policies()
        return sentences

    def _definitions(self, tenant_id: str) -> list[AdapterDefinition]:
        """Return the definitions of the adapters of a tenant."""
        return [describe_adapter(name, adapter) for name, adapter in self.deployment.ports.adapters(tenant_id).items()]

    async def _log_findings(self, tenant_id: str, sentences: Sequence[str]) -> None:
        """Log what the command line says after an act: rules that cannot match now, and the versions that requests can
        still choose beside a pin.
        """
        if sentences:
            log_found(await self.configuration.of_tenant(tenant_id))

    async def check_policies(self) -> None:
        """Check that every tenant of the directory has exactly the policies in force that the settings name.

        A tenant whose active set is for another environment is left out: that set decides nothing here, and
        `configuration` reports it.

        Raises:
            InvalidSettings: a tenant has other policies in force, or none; or the settings name policies, and the
                directory lists no tenants.
        """
        if self.settings.policies is None:
            return
        for tenant_id in self.tenants():
            try:
                active = await self.deployment.catalog(tenant_id).active()
            except OtherEnvironment:
                continue
            if not active.version:
                detail = f"the settings name policies, and nothing is active in `{tenant_id}`"
                raise invalid_setting("/policies", "not_initialised", detail, "run `contextos apply`")
            if faults := _differences(self.settings.policies, active.policies):
                detail = f"in `{tenant_id}`, whose active set has the version {active.version}: {'; '.join(faults)}"
                remedy = "correct the settings, or change the policies with `contextos policies`"
                raise invalid_setting("/policies", "policies_differ", detail, remedy)

    async def drive_due_runs(self, *, patience_s: float = PATIENCE_S) -> list[DrivenRun]:
        """Drive once each run that is due or whose process died. Runs on the dead-letter list (failed for good) are
        left alone. A run that still cannot go on after `patience_s` seconds has `Unavailable` as its error.
        """
        engine = local_engine(self.deployment, self.witness_publisher)
        return await drive_due_runs(self.deployment, engine, patience_s=patience_s)

    def close(self) -> None:
        """Release leases, files, connections and the threads of adapters that the settings name.

        Pending writes to a SQLite file are finished first. Pending writes to a PostgreSQL database are not awaited.
        """
        with ExitStack() as closing:
            closing.callback(self.owner.close)
            closing.callback(self.stores.close)
            for adapter in self.owned:
                closing.callback(adapter.close)
            closing.callback(self.deployment.close)
            closing.callback(self.delivery.close)
            closing.callback(self.watch.close)


def _differences(configured: Sequence[tuple[str, str]], active: Sequence[tuple[str, str]]) -> list[str]:
    missing = [ref for _, ref in sorted(set(configured) - set(active))]
    extra = [ref for _, ref in sorted(set(active) - set(configured))]
    differences = [f"the settings name `{ref}`, which is not in force so" for ref in missing]
    return differences + [f"`{ref}` is in force, and the settings do not name it so" for ref in extra]
