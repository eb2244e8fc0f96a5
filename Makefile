# Every target makes `.venv` first, so each works on a fresh machine, without a terminal and without
# an activated environment. `make demo` and `make test` are all the set-up there is.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
SIMULATE_SEEDS ?= 500
SOAK_SEEDS ?= 5000
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
PYTEST := $(BIN)/python -m pytest -q --ignore tests/conformance --ignore tests/e2e/test_public_mcp_servers.py --numprocesses 3 --dist loadfile
LOCK := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate --quiet

# A test starts hundreds of processes. Where nobody may write what was compiled, each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# What `make check` runs, and `make test` does not run again.
CHECKED := $(addprefix tests/,docs test_tidy.py test_layers.py test_names.py test_citations.py test_documents.py \
	test_private_keys.py test_exports.py test_requirements.py test_locks.py test_prose.py test_cost.py test_budget.py)

# What the image of `Containerfile` has besides the runtime.
SERVICE := service postgres http mcp a2a telemetry

.PHONY: demo test test-slow browser agentspec mcp-servers mcp-tools mcp-conformance openapi-documents check simulate bench bench-agentdojo bench-disguises bench-models docs soak lock clean

demo: .venv/installed
	@if [ -t 0 ] && [ -t 1 ]; then $(BIN)/contextos demo; else $(BIN)/contextos demo --yes; fi

test: .venv/installed
	$(PYTEST) $(CHECKED:%=--ignore %) -m "not slow and not soak"

# What kills processes, restarts servers, types pages into a shell or tries a wide matrix: as long again as `make test`.
test-slow: .venv/installed
	$(PYTEST) -m "slow and not soak"

# Browser tests drive Debian's Chromium, so this needs the rights to install a package.
browser:
	test -x /usr/bin/chromium || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core)

# Agents on WayFlow: its dependencies exclude ours, so it has an environment of its own (600 MB).
agentspec: .venv-agentspec/locked
	PYTHONPATH=src:agentspec:simulator .venv-agentspec/bin/python -m pytest -q tests/agentspec tests/docs/test_code_blocks.py \
		-k "agentspec or agents.md"

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src/contextos agentspec/contextos_agentspec simulator/contextos_sim docsgen
	$(BIN)/lint-imports
	$(BIN)/hadolint Containerfile
	$(BIN)/contextos schemas --check
	$(BIN)/python -m docsgen.reference --check
	$(BIN)/python -m pytest -q $(CHECKED)

simulate: .venv/installed
	$(BIN)/contextos-sim --seeds $(SIMULATE_SEEDS)

bench: .venv/installed
	$(BIN)/python benchmarks/run.py

# AgentDojo needs the clients of all model providers, so it has an environment of its own (320 MB).
bench-agentdojo: .venv-agentdojo/locked
	PYTHONPATH=src:. .venv-agentdojo/bin/python -m benchmarks.agentdojo

# Calls of models beside LiteLLM's proxy and Pydantic AI with DBOS, which have an environment of their own (800 MB).
bench-models: .venv/installed .venv-model-peers/locked
	$(BIN)/python -m benchmarks.models

# Values that a mail tells an agent in disguise: what the search recognises, and what a person is asked about.
bench-disguises: .venv/installed
	PYTHONPATH=. $(BIN)/python -m benchmarks.disguises

docs: .venv/installed
	$(BIN)/python -m docsgen.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

soak: .venv/installed
	$(BIN)/contextos-sim --seeds $(SOAK_SEEDS)
	$(BIN)/python -m pytest -q -m soak --hypothesis-profile=soak -o faulthandler_timeout=0

# Dev is constrained by runtime: what is tested is what is shipped.
lock: .venv/installed
	$(LOCK) --upgrade --output-file requirements/runtime.txt
	$(LOCK) --upgrade --group dev --constraint requirements/runtime.txt --output-file requirements/dev.txt
	$(LOCK) --upgrade $(SERVICE:%=--extra %) --constraint requirements/dev.txt --output-file requirements/service.txt
	$(LOCK:pyproject.toml=--group build) --upgrade --constraint requirements/dev.txt --output-file requirements/build.txt
	$(LOCK) --upgrade --group agentspec --output-file requirements/agentspec.txt
	$(LOCK) --upgrade --group agentdojo --constraint requirements/runtime.txt --output-file requirements/agentdojo.txt
	printf '%s\n' mcp-server-git mcp-server-fetch mcp-server-time excel-mcp-server duckduckgo-mcp-server | $(LOCK:pyproject.toml=-) --upgrade --output-file requirements/mcp-servers.txt
	printf '%s\n' mcp-server-sqlite mcp-server-calculator cli-mcp-server mcp-server-duckdb 'mcp<2' | $(LOCK:pyproject.toml=-) --upgrade --output-file requirements/mcp-server-sqlite.txt
	printf '%s\n' 'litellm[proxy]' dbos 'pydantic-ai-slim[openai]' | $(LOCK:pyproject.toml=-) --upgrade --output-file requirements/model-peers.txt

clean:
	rm -rf .venv .venv-agentspec .venv-agentdojo .venv-mcp-servers .venv-mcp-server-sqlite .venv-model-peers site dist .coverage htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src agentspec simulator docsgen tests benchmarks examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# Made anew when the lock changes, so that nothing stays installed that the lock does not name.
# The lock names every package, so pip resolves nothing. Without --no-deps, pip looks for
# "coverage[toml]" apart from "coverage==…", takes the newest release, and refuses it unhashed.
.venv/locked: requirements/dev.txt
	$(PYTHON) -c 'import sys; sys.exit("python 3.11 or newer is needed; run make with PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "making .venv and installing $$(grep -c == requirements/dev.txt) locked packages: a minute or two, once"
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip --disable-pip-version-check install --progress-bar off --no-deps --require-hashes -r requirements/dev.txt \
		| awk '/^(Collecting|Installing)/ { print "  " $$1, $$2; fflush() }'; exit $${PIPESTATUS[0]}
	@touch $@

.venv-agentspec/locked: requirements/agentspec.txt
	$(PYTHON) -m venv --clear .venv-agentspec
	.venv-agentspec/bin/python -m pip --disable-pip-version-check --quiet --quiet install --no-deps --require-hashes -r $<
	@touch $@

.venv-%/locked: requirements/%.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet --quiet install --no-deps --require-hashes -r $<
	@touch $@

# Servers that nobody here wrote, for tests: each set of PyPI in an environment of its own. Those of npm: `tests/npm.py`.
mcp-servers: .venv/installed .venv-mcp-servers/locked .venv-mcp-server-sqlite/locked
	$(BIN)/python -m pytest -q tests/e2e/test_stock_mcp_servers.py

# The tools of more than 60 servers of npm and PyPI as a table, and ten of them called (1.5 GB, minutes to install).
mcp-tools: .venv/installed .venv-mcp-servers/locked .venv-mcp-server-sqlite/locked
	$(BIN)/python -m pytest -q tests/e2e/test_public_mcp_servers.py
	PYTHONPATH=. $(BIN)/python -m benchmarks.mcp_tools

# The conformance suite of MCP, from npm, against our server and our client.
mcp-conformance: .venv/installed
	$(BIN)/python -m pytest -q tests/conformance

# OpenAPI documents that nobody here wrote, pinned by digest: how much of each becomes capabilities, and why not the rest.
openapi-documents: .venv/installed
	$(BIN)/python -m pytest -q -n0 tests/e2e/test_public_openapi.py

.venv/installed: .venv/locked pyproject.toml agentspec/pyproject.toml simulator/pyproject.toml
	$(PIP) install --no-deps --no-build-isolation -e . -e agentspec -e simulator
	@touch $@
