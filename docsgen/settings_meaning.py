"""What each setting is for, in one line, for the generated page of the settings."""

from __future__ import annotations

from typing import Final

ENVIRONMENT: Final = {
    "CONTEXTOS_WORKSPACE": "the workspace's directory, if `--workspace` is not given",
    "CONTEXTOS_MIGRATE_URL": "the PostgreSQL database that `contextos store migrate` works on, if `--url` is not given",
    "CONTEXTOS_PASSPHRASE_FILE": "the file with the passphrase of an encrypted `--key`; else the terminal is asked",
    "CONTEXTOS_DEBUG": "write the log to stderr; of an exception it holds the class and the frames, never the text",
    "NO_COLOR": "print without colour, even on a terminal",
}

MEANING: Final = {
    "workspace": "the directory that holds `contextos.toml` and the files named below",
    "store": "holds journals, documents and the graph: a SQLite file, or the URL of a PostgreSQL database on which "
    "`contextos store migrate` ran (extra `postgres`)",
    "directory": "the file of users, agents and approvers by tenant (needs `unsafe_local_directory`); or a table, see "
    "`[directory]` below",
    "keys": "the directory of plain key files: `runtime.json` lists the public keys, and each private one is beside it "
    "(needs `unsafe_local_keys`); or a table, see `[keys]` below",
    "profile": "`embedded` or `service`; recorded in every run",
    "environment": "the environment that the deployment serves: `dev`, `staging` or `prod`; recorded in every run. "
    "Empty is `dev`, and refused of the profile `service`",
    "packs": "directories of what `contextos apply` publishes: signed artifacts (`*.json`), and short forms of packs "
    "(`*.yaml`), which the runtime signs",
    "policies": "pairs of level (`platform`, `tenant`) and ref: the policies in force above every pack",
    "adapters": "trusted function adapters: `path` (`module.py:attribute`), `digest` (`sha256:...` of the source) "
    "and `files`, a table of the helpers that it imports from the workspace, each with its digest; and the adapter "
    "files of foreign servers: `path` (`adapters/NAME.json`) and `digest`, which `contextos adapters publish` writes, "
    "and whose its credentials are: `tenants`, a table by tenant of the variables and files in place of those that the "
    "file names, or `shared = true`, one set for every tenant",
    "unsafe": "the development stand-ins in use; see `unsafe` below",
    "lease_ttl_s": "seconds after which a run is taken over from a driver that may no longer exist",
    "heartbeat_ttl_s": "seconds without a heartbeat after which a `long_running` run is taken over from its engine",
    "witness": "a file, or the URL of a sink (extra `http`), where the owner of the store cannot write: it receives "
    "the signed heads of `index` and `control`, and `verify` compares with them (empty: a file in "
    "`$XDG_STATE_HOME/contextos` for the profile `embedded` with a SQLite file, else none; `off`: none, and a cut "
    "cannot be proved)",
    "driving": "limits of workers; see `[driving]` below",
    "max_drives": "runs that a worker drives at once",
    "max_drives_per_tenant": "runs of one tenant that a worker drives at once",
    "max_drives_per_tenant_in_all": "runs of one tenant that all workers drive at once (0: no limit; needs PostgreSQL)",
    "rate_per_tenant": "drives of one tenant that all workers start in the period (0: no limit; needs PostgreSQL)",
    "rate_period_ms": "the period of `rate_per_tenant`, in milliseconds",
    "limits": "limits of every run; see `[limits]` below",
    "total_tokens": "tokens of a run",
    "max_tool_calls": "dispatched tool calls of a run",
    "max_replan_attempts": "plans after the first",
    "wall_clock_ms": "milliseconds of a run; time spent waiting for a person or for a turn does not count",
    "max_cost_cents": "US cents of a run",
    "max_payload_bytes": "bytes of a request",
    "max_session_duration_ms": "milliseconds from the receipt of a run to its end, including waiting",
    "observed_packs": "the ids of the packs that may observe in the profile `service`",
    "adapter_authors": "the public keys (hex) one of which has to have signed each adapter file; without them none "
    "has a signature",
    "egress": "by tenant, the endpoints (`host` or `host:port`) that calls may reach; see `[egress]` below",
    "redaction": "by tenant, the rules that redact besides those of its packs; see `[redaction]` below",
    "approval_logins": "the OIDC issuer whose logins can answer approvals; see `[approval_logins]` below",
    "outbox": "where notices of runs are sent, as webhooks and mails; see `[outbox]` below",
    "attachments": "where the files are that a request can name; see `[attachments]` below",
    "browser_logins": "how people log in with a browser; see `[browser_logins]` below",
    "traces_from": "whose W3C trace a run over HTTP or MCP goes on with: of every caller (`callers`), or of workloads "
    "only, so that a run of a person begins a trace of its own (`workloads`)",
    "workloads": "the SPIFFE trust domains whose workloads can act over HTTP; see `[workloads]` below",
    "hops": "the partners whose agents can call with a hop claim; see `[hops]` below",
    "credentials": "who issues the credentials of calls whose auth mode is `exchange`; see `[credentials]` below",
    "telemetry": "what is reported to OpenTelemetry and Prometheus (extra `telemetry`); see `[telemetry]` below",
    "claim_ttl_s": "seconds for which the identity claim of a run or of one call is valid",
    "credential_ttl_s": "the longest life of a credential that is issued for a call, in seconds",
    "pressure": "limits of this process; see `[pressure]` below",
    "max_callers": "requests answered at the same time; more are refused with exit code 4 (`overloaded`)",
    "max_callers_per_tenant": "requests of one tenant answered at the same time, so that other tenants have room",
    "max_turns": "runs computed at the same time; a run that waits for an adapter does not count",
    "max_turns_per_tenant": "runs of one tenant computed at the same time, if another tenant was active in the last "
    "minute; a smaller number isolates tenants better",
    "max_new_runs_per_minute_per_tenant": "new runs of one tenant; more are refused, with the time to wait",
    "max_http_requests_per_minute_per_tenant": "requests of one tenant to the HTTP API; more are answered with 429 and "
    "`Retry-After`",
    "max_http_requests_per_minute_per_caller": "requests of one person or workload in one tenant, so that the "
    "others of the tenant have room",
    "max_http_percent_per_address": "percent of the connections, of the streams of events and of the held calls of a "
    "server that one address (of IPv6, one /64 network) can have; 100 behind a proxy, through which all come",
    "max_open_sessions_per_agent": "open sessions of one agent in one tenant, over all processes; more are refused "
    "until some have ended",
    "max_open_questions_per_role": "open questions to one role of a tenant, and so to each person who holds it, over "
    "all processes; a call that needs one more waits, and its caller reads so",
    "breaker_failures_in_a_row": "transport failures in a row after which a capability is not called for a while",
    "breaker_cool_down_ms": "milliseconds after which one call is tried again",
}
"""What each setting is for. A setting without an entry here stops the generator."""

UNSAFE_MEANING: Final = {
    "unsafe_local_directory": "identities come from a file that nobody signed",
    "unsafe_local_keys": "private keys are plain files of this machine, or all made from one seed",
    "unsafe_local_approvals": "an approval can be answered without the approver's key",
    "unsafe_local_operators": "an operator is only named (`--by` without `--key`); the act on record says so",
    "unsafe_unsigned_packs": "packs without a signature are loaded",
}


PORT_MEANING: Final = {
    ("SignedDirectorySetting", "path"): "the signed file",
    ("SignedDirectorySetting", "signers"): "the public keys (hex) of who may sign it",
    ("OidcDirectorySetting", "path"): "the signed file with agents, approvers and limits; its users are none here",
    ("OidcDirectorySetting", "signers"): "the public keys (hex) of who may sign it",
    ("OidcDirectorySetting", "issuer"): "the issuer, exactly as in `iss`",
    ("OidcDirectorySetting", "audience"): "for whom tokens are made, exactly as in `aud`",
    ("OidcDirectorySetting", "roles"): "a table: value of the claim `roles_claim` to role; the first is the user's own",
    ("OidcDirectorySetting", "jwks_url"): "the issuer's `jwks_uri`; `https://`, or `http://` on this machine",
    ("OidcDirectorySetting", "jwks_file"): "a file with its JWK Set; exactly one of the two is given",
    ("OidcDirectorySetting", "algorithms"): "the algorithms that the issuer signs with; none with a shared secret",
    ("OidcDirectorySetting", "leeway_s"): "seconds by which the issuer's clock can be off (at most 300)",
    ("OidcDirectorySetting", "token_type"): "the header `typ`: `JWT` for ID tokens, `at+jwt` for access tokens",
    ("OidcDirectorySetting", "user_claim"): "the claim that is the user's id here",
    ("OidcDirectorySetting", "roles_claim"): "the claim that lists groups or roles",
    ("OidcDirectorySetting", "scopes"): "the scopes that a user can delegate, as far as their token has them",
    ("OidcDirectorySetting", "scopes_claim"): "the claim that lists scopes, or has them with spaces between",
    ("OidcDirectorySetting", "organization_claim"): "the claim that is the user's organisation; empty: none",
    ("OidcDirectorySetting", "tenant_claim"): "the claim that lists the user's tenants; a file with several needs it",
    ("OidcDirectorySetting", "agent_claim"): "the claim that is the only agent to which a token delegates; empty: the "
    "request names it",
    (
        "OidcDirectorySetting",
        "clients",
    ): "the clients to which tokens are issued (`azp`, `client_id`), of which each token "
    "then states one; empty: an `azp` has to be the audience",
    ("OidcDirectorySetting", "internal"): "true: `jwks_url` is at a private address",
    ("TrustDomainSetting", "name"): "its name, as in `spiffe://acme.example/…`",
    ("TrustDomainSetting", "tenants"): "the tenants in which its workloads can be agents",
    ("TrustDomainSetting", "bundle_url"): "its bundle endpoint (profile `https_web`); `https://`, or `http://` on this "
    "machine",
    (
        "TrustDomainSetting",
        "bundle_file",
    ): "a file with its bundle, read again when a key is not in it; exactly one of the two is given",
    ("TrustDomainSetting", "algorithms"): "those that it signs with, of the ones that SPIFFE allows",
    ("TrustDomainSetting", "leeway_s"): "seconds by which its clock can be off (at most 300)",
    ("TrustDomainSetting", "internal"): "true: `bundle_url` is at a private address",
    ("BrowserLoginsSetting", "origin"): "where browsers see the service, such as `https://contextos.acme.example`; "
    "`http://` only on this machine, and not in the profile `service`",
    ("BrowserLoginsSetting", "client_id"): "as whom the issuer knows it; its redirect URI there is `ORIGIN/callback`",
    ("BrowserLoginsSetting", "authorization_url"): "the issuer's authorization endpoint",
    ("BrowserLoginsSetting", "token_url"): "the issuer's token endpoint; `https://`, or `http://` on this machine",
    ("BrowserLoginsSetting", "secret_file"): "the file with the client's secret, read for each login",
    ("BrowserLoginsSetting", "secret_env"): "the environment variable that holds it; without both the client is public",
    ("BrowserLoginsSetting", "scopes"): "what is asked for at login; `openid` is among them",
    ("BrowserLoginsSetting", "max_session_s"): "seconds after which a session ends, if its token has not before",
    ("BrowserLoginsSetting", "internal"): "true: `token_url` is at a private address",
    ("WorkloadsSetting", "audience"): "for whom JWT-SVIDs are made: exactly this one, and no second",
    ("WorkloadsSetting", "trust_domains"): "the trust domains; no other counts",
    ("HopsSetting", "address"): "as whom partners know this deployment: `aud` of their claims, `iss` of its own",
    ("HopsSetting", "issuers"): "the partners; no other counts",
    ("HopIssuerSetting", "issuer"): "the `iss` of its claims: the `address` in its own `[hops]`",
    ("HopIssuerSetting", "tenants"): "the tenants in which its agents can call",
    ("HopIssuerSetting", "jwks_url"): "where its keys are; `https://`, or `http://` on this machine",
    ("HopIssuerSetting", "jwks_file"): "a file with them, as its `contextos key list --jwks claim` prints; exactly one "
    "of the two is given",
    ("HopIssuerSetting", "algorithms"): "those that it signs with",
    ("HopIssuerSetting", "leeway_s"): "seconds by which its clock can be off (at most 300)",
    ("HopIssuerSetting", "internal"): "true: `jwks_url` is at a private address",
    ("Pkcs8KeysSetting", "path"): "the directory with `runtime.json` and the encrypted files",
    ("Pkcs8KeysSetting", "passphrase_file"): "the file that holds the passphrase; only its owner can read it",
    ("Pkcs8KeysSetting", "passphrase_env"): "the environment variable that holds it; exactly one of the two is given",
    ("RemoteKeysSetting", "url"): "where the keys are resources; `https://`, or `http://` on this machine",
    ("RemoteKeysSetting", "keys"): "the pinned keys; of one purpose the first that is not retired signs",
    ("RemoteKeysSetting", "token_file"): "the file with the bearer token, read for each request",
    ("RemoteKeysSetting", "token_env"): "the environment variable that holds it; without both no token is sent",
    ("RemoteKeysSetting", "timeout_s"): "seconds after which a request is given up",
    ("ApprovalLoginsSetting", "issuer"): "the `iss` of its tokens",
    ("ApprovalLoginsSetting", "audience"): "the `aud` that its tokens have for this deployment",
    ("ApprovalLoginsSetting", "jwks_url"): "where its keys are (`jwks_uri`); `https://`, or `http://` on this machine",
    ("ApprovalLoginsSetting", "algorithms"): "those that it signs with; all are asymmetric",
    ("ApprovalLoginsSetting", "leeway_s"): "seconds by which its clock can be off",
    ("ApprovalLoginsSetting", "internal"): "true: `jwks_url` is at a private address",
    ("ApprovalLoginsSetting", "max_auth_age_s"): "seconds since the login (`auth_time`) for which it counts",
    ("TokenExchangeSetting", "url"): "its token endpoint; `https://`, or `http://` on this machine",
    ("TokenExchangeSetting", "client_id"): "the id by which it knows this runtime",
    ("TokenExchangeSetting", "secret_file"): "the file with the client's secret, read for each request",
    ("TokenExchangeSetting", "secret_env"): "the environment variable that holds it; exactly one of the two is given",
    ("TokenExchangeSetting", "issuer"): "its identifier, and the `aud` of the tokens that it gets; empty: the URL",
    ("TokenExchangeSetting", "internal"): "whether it is at a loopback or private address",
    ("TokenExchangeSetting", "timeout_s"): "seconds after which a request is given up",
    ("WebhookSetting", "name"): "the name of the destination, for ever: how far it is, is stored under it",
    ("WebhookSetting", "tenant"): "the tenant whose runs it is about",
    ("WebhookSetting", "link"): "the page of a run of your own, with `{run}` in it",
    ("WebhookSetting", "types"): "which notices are sent",
    ("WebhookSetting", "remind_after_s"): "seconds after which a question that still waits is sent once more; 0: never",
    ("WebhookSetting", "max_attempts"): "attempts after which a notice is given up, on record",
    ("WebhookSetting", "timeout_s"): "seconds after which an attempt has failed",
    ("WebhookSetting", "url"): "where notices are posted; `https://`, or `http://` on this machine if it is `internal`",
    (
        "WebhookSetting",
        "secret_file",
    ): "the file with the secrets, read for each notice: each `whsec_` and Base64, apart by blanks",
    ("WebhookSetting", "secret_env"): "the environment variable that holds them; exactly one of the two is given",
    ("WebhookSetting", "internal"): "whether it is at a loopback or private address",
    ("MailSetting", "name"): "the name of the destination, for ever: how far it is, is stored under it",
    ("MailSetting", "tenant"): "the tenant whose runs it is about",
    ("MailSetting", "link"): "the page of a run of your own, with `{run}` in it",
    ("MailSetting", "types"): "which notices are sent",
    ("MailSetting", "remind_after_s"): "seconds after which a question that still waits is sent once more; 0: never",
    ("MailSetting", "max_attempts"): "attempts after which a notice is given up, on record",
    ("MailSetting", "timeout_s"): "seconds after which an attempt has failed",
    ("MailSetting", "host"): "the mail server",
    ("MailSetting", "sender"): "the address of the sender",
    ("MailSetting", "to"): "the addresses that get every notice",
    ("MailSetting", "port"): "its port",
    ("MailSetting", "security"): "`tls`, `starttls`, or `none` for a server on this machine",
    ("MailSetting", "user"): "the user who logs in there; empty: nobody does",
    ("MailSetting", "password_file"): "the file with the password, read for each mail",
    (
        "MailSetting",
        "password_env",
    ): "the environment variable that holds it; exactly one of the two is given with a `user`",
    ("AttachmentsSetting", "places"): "by tenant, the beginnings of the URLs of its files, each with `/` at its end",
    ("AttachmentsSetting", "internal"): "true: their hosts are at loopback or private addresses",
    (
        "TelemetrySetting",
        "otlp_url",
    ): "the base URL of an OTLP collector over HTTP, for every tenant that `tenants` does "
    "not list; `https://`, or `http://` on this machine; empty: of these tenants nothing is sent, and there are only "
    "the metrics for Prometheus",
    ("TelemetrySetting", "service_name"): "`service.name` of all that is sent",
    ("TelemetrySetting", "sample_share"): "the share of traces, from 0 to 1, of runs without a gate, a failure, an "
    "incident and a call that can have an effect; all others are always sent",
    ("TelemetrySetting", "metrics_interval_s"): "seconds between two sendings of the metrics",
    ("TelemetrySetting", "timeout_s"): "seconds after which a sending is given up",
    ("TelemetrySetting", "token_file"): "the file with the bearer token of the collector, read at start",
    ("TelemetrySetting", "token_env"): "the environment variable that holds it; without both no token is sent",
    ("TelemetrySetting", "headers_file"): "the file with further headers for the collector, `name=value,…` with values "
    "in percent-encoding, read at start",
    ("TelemetrySetting", "headers_env"): "the environment variable that holds them",
    ("TelemetrySetting", "tenants"): "the collectors that are of one tenant each: `[telemetry.tenants.<tenant>]`",
    ("CollectorSetting", "exporter"): "`otlp`, or `none`: nothing of this tenant is sent, to no collector",
    ("CollectorSetting", "otlp_url"): "the base URL of the tenant's OTLP collector over HTTP",
    ("CollectorSetting", "internal"): "a person said that it is at a loopback or private address; on the loopback it "
    "can be `http://`",
    ("CollectorSetting", "token_file"): "the file with its bearer token, read at start",
    ("CollectorSetting", "token_env"): "the environment variable that holds it",
    ("CollectorSetting", "headers_file"): "the file with further headers, as above",
    ("CollectorSetting", "headers_env"): "the environment variable that holds them",
    ("RemoteKeySetting", "purpose"): "what the key signs",
    ("RemoteKeySetting", "name"): "its name below the URL",
    ("RemoteKeySetting", "public_key"): "the 32 bytes of its public half, in hex",
    ("RemoteKeySetting", "retired_at_us"): "Unix microseconds after which nothing that it signs counts (0: it signs)",
}
"""What each setting of a table with a `kind` is for."""
