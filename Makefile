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

# The tests start hundreds of Python processes. If each of them compiled all that it imports, because the user's own
# setting is not to keep compiled files, that would be a good part of the whole time. `make clean` removes them.
export PYTHONDONTWRITEBYTECODE :=

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
	$(BIN)/python -m tools.chart verify

.PHONY: generate
generate: $(INSTALLED) ## Write what the chart has from elsewhere: CRDs, the values' schema, README, dashboard
	$(BIN)/python -m tools.chart generate
	$(BIN)/python -m tools.dashboard

.PHONY: verify
verify: $(INSTALLED) ## Check that those are as they would be written (part of lint)
	$(BIN)/python -m tools.chart verify

.PHONY: format
format: $(INSTALLED) ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Most tests wait for something most of the time, so there are more processes than cores. They are handed out in the
# order that tests/support/order.py gives them; the groups are of tests that cannot run side by side.
JOBS ?= 5
IN_PARALLEL := --numprocesses $(JOBS) --dist loadgroup --no-loadscope-reorder

.PHONY: test
test: setup lint ## Lint, then run every test on every kind of Redis installation, and on a cluster
	$(BIN)/python -m pytest --topology all $(IN_PARALLEL)

.PHONY: test-fast
test-fast: setup lint ## Lint, then run what is not marked slow, on a single server
	$(BIN)/python -m pytest -m "not slow" $(IN_PARALLEL)

# `make drill DRILL=worker_kill` runs one drill (or several: DRILL="redis_kill or poison"); `make drill FORM=medium`
# rehearses them in minutes. Only the long form is published; rows of drills that are not run stay as they are.
DRILL ?=
FORM ?= long

.PHONY: drill
drill: setup ## Run the fault drills in their long form (two to three hours); writes docs/reliability.md
	@status=0; \
	HEADRACE_DRILL=$(FORM) $(BIN)/python -m pytest -s -m drill tests/chaos tests/operator $(if $(DRILL),-k "$(DRILL)") || status=$$?; \
	$(BIN)/python -m tests.chaos.publish; \
	exit $$status

# `make cluster NAME=other NODES=3` gives a second one, with three nodes. HEADRACE_KUBECONFIG names a cluster of your own.
NAME ?= headrace
NODES ?= 1

.PHONY: cluster
cluster: $(INSTALLED) ## Bring up a Kubernetes cluster for tests (kind; NAME=..., NODES=...)
	@$(BIN)/python -m tests.cluster up --name $(NAME) --nodes $(NODES)

.PHONY: cluster-down
cluster-down: $(INSTALLED) ## Take that cluster down and leave nothing but the cache
	@$(BIN)/python -m tests.cluster down --name $(NAME)

.PHONY: images
images: $(INSTALLED) ## Build the images of operator, worker and a small Redis with that cluster's Docker
	@$(BIN)/python -m tests.support.images --name $(NAME)

.PHONY: images-load
images-load: $(INSTALLED) ## Build the images and bring them into that cluster
	@$(BIN)/python -m tests.support.images --name $(NAME) --load

.PHONY: durability
durability: setup ## Crash Redis in every setup and count what was lost; writes docs/reliability.md
	$(BIN)/python -m tests.chaos.durability --publish

# `make demo KEEP=1` keeps the cluster and says how to look around in it.
KEEP ?=

.PHONY: demo
demo: setup ## Show a burst of tasks and its workers on a cluster of its own, which goes again (KEEP=1: stays)
	@$(BIN)/python -m examples.demo $(if $(KEEP),--keep)

# `make bench BENCH="--quick --peers headrace,bullmq"` tries something out; the default run is what is published.
BENCH ?= --appendonly both --publish --output build/bench.json

.PHONY: bench
bench: setup ## Measure Headrace beside other queues; writes docs/performance.md
	$(BIN)/python -m benchmarks $(BENCH)

# Neither the index nor a path of the machine it was made on belongs in a lock file. Pins that still fit
# are kept; `make lock UPGRADE=--upgrade` moves all of them to the newest versions.
PIP_COMPILE = $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options $(UPGRADE)

# $(call write-lock,FILE,FIRST WORDS OF ITS HEADING,ARGUMENTS OF PIP-COMPILE)
define write-lock
	@rm -f $(1).new
	@if [ -e $(1) ]; then cp $(1) $(1).new; fi
	$(PIP_COMPILE) --output-file $(1).new $(3)
	@{ echo "# $(2), pinned with its hashes. Written by \`make lock\`; do not edit."; \
		grep -v '^# .*Written by .make lock' $(1).new; } > $(1).tmp
	@mv $(1).tmp $(1)
	@rm -f $(1).new
endef

.PHONY: lock
lock: ## Write the lock files anew from pyproject.toml
	@test -x $(BIN)/pip-compile \
		|| { echo "pip-compile is missing: run make setup first." >&2; exit 1; }
	$(call write-lock,requirements.lock,Everything that runs here,--extra dev --extra operator --extra metrics --extra tracing pyproject.toml tools/any-python.in)
	$(call write-lock,worker_image/requirements.lock,What the worker image holds,--extra metrics --extra tracing pyproject.toml tools/any-python.in)
	$(call write-lock,requirements-operator.lock,What the image of operator and API holds,--extra operator --extra tracing pyproject.toml tools/any-python.in)
	$(call write-lock,requirements-build.lock,What the images' wheels are built with,--only-build-deps --build-deps-for wheel pyproject.toml)

.PHONY: clean
clean: ## Remove what the other targets made, .venv included
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	rm -f requirements*.lock.new requirements*.lock.tmp worker_image/requirements.lock.new worker_image/requirements.lock.tmp
	find src operator tests examples benchmarks tools worker_image -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
