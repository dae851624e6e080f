# Everything a developer does here has a target; `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The Python that creates the virtual environment.
PY ?= python3

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: system-packages $(INSTALLED) ## Install all that the tests need: system packages and .venv

.PHONY: system-packages
system-packages:
	@tools/system-packages.sh

# The virtual environment is brought up to date only when one of these two files changes.
$(INSTALLED): requirements.lock pyproject.toml
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "Headrace needs Python 3.11 or newer, and '$(PY)' is not; name one with: make setup PY=/path/to/python3" >&2; exit 1; }
	test -x $(BIN)/python || $(PY) -m venv $(VENV)
	$(PIP_INSTALL) --require-hashes -r requirements.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: lint
lint: $(INSTALLED) ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: $(INSTALLED) ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: test
test: setup lint ## Lint, then run every test on every kind of Redis installation
	$(BIN)/python -m pytest --topology all

.PHONY: test-fast
test-fast: setup lint ## Lint, then run what is not marked slow, on a single server
	$(BIN)/python -m pytest -m "not slow"

# `make drill DRILL=worker_kill` runs one drill (or several: DRILL="redis_kill or poison"); `make drill FORM=medium`
# rehearses them in minutes. Only the long form is published; rows of drills that are not run stay as they are.
DRILL ?=
FORM ?= long

.PHONY: drill
drill: setup ## Run the fault drills in their long form (about 90 minutes); writes docs/reliability.md
	@status=0; \
	HEADRACE_DRILL=$(FORM) $(BIN)/python -m pytest -s -m drill tests/chaos $(if $(DRILL),-k "$(DRILL)") || status=$$?; \
	$(BIN)/python -m tests.chaos.publish; \
	exit $$status

.PHONY: durability
durability: setup ## Crash Redis in every setup and count what was lost; writes docs/reliability.md
	$(BIN)/python -m tests.chaos.durability --publish

.PHONY: demo
demo: setup ## Run the demonstration
	$(BIN)/python -m examples.demo

# `make bench BENCH="--quick --peers headrace,bullmq"` tries something out; the default run is what is published.
BENCH ?= --appendonly both --publish --output build/bench.json

.PHONY: bench
bench: setup ## Measure Headrace beside other queues; writes docs/performance.md
	$(BIN)/python -m benchmarks $(BENCH)

# Neither the index nor a path of the machine it was made on belongs in the lock file. Pins that still fit
# are kept; `make lock UPGRADE=--upgrade` moves all of them to the newest versions.
.PHONY: lock
lock: ## Write requirements.lock anew from pyproject.toml
	@test -x $(BIN)/pip-compile \
		|| { echo "pip-compile is missing: run make setup first." >&2; exit 1; }
	@rm -f requirements.lock.new
	@if [ -e requirements.lock ]; then cp requirements.lock requirements.lock.new; fi
	$(BIN)/pip-compile --quiet --extra dev --generate-hashes --allow-unsafe --strip-extras --no-header \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
		$(UPGRADE) --output-file requirements.lock.new pyproject.toml
	@{ echo "# Everything that runs here, pinned with its hashes. Written by \`make lock\`; do not edit."; \
		grep -v '^# Everything that runs here' requirements.lock.new; } > requirements.lock.tmp
	@mv requirements.lock.tmp requirements.lock
	@rm -f requirements.lock.new

.PHONY: clean
clean: ## Remove what the other targets made, .venv included
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	rm -f requirements.lock.new requirements.lock.tmp
	find src tests examples benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
