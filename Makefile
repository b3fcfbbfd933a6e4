# Windlass: the verbs of the development loop. `make` alone lists them.

# The first interpreter that is 3.11 or newer and can make an environment; override with `make PYTHON=… env`.
PYTHON ?= $(firstword $(foreach candidate,python3 python3.13 python3.12 python3.11,$(shell \
  $(candidate) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(candidate))))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-from-lock
RUN_STAMP := $(VENV)/.made-for-running
# What `make up` needs: the developers' environment where there is one, else only what running takes.
RUNNING = $(if $(wildcard $(STAMP)),$(STAMP),$(RUN_STAMP))
COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11
# Test processes; `auto` is one a core.
WORKERS ?= auto

# The public trace files are not part of the project. Where they lie beside it, everything finds them.
ifneq ($(wildcard ../shared/traces/.),)
export WINDLASS_TRACES ?= $(abspath ../shared/traces)
endif

.DEFAULT_GOAL := help
.PHONY: help env test test-feasibility test-matrix cluster mutants victims worlds loop-seeds loop-unrepaired fuzz history history-size trends load worlds-unrepaired operator-fleet why-cases why-live stranger lint format bench docs page kernels up lock release clean

help: ## list what can be done
	@echo 'make TARGET, where TARGET is one of'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'New here? `make env`, then `$(BIN)/windlass --help`.'

env: $(STAMP) ## make .venv from requirements.lock (at once, if nothing changed)
	@:

# uv is in the lock file like everything else: pip fetches it by hash, and uv does the rest.
$(STAMP): requirements.lock pyproject.toml bench/pyproject.toml
	@test -n '$(PYTHON)' || { echo 'Windlass needs Python 3.11 or newer with venv and pip; none was found.' >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@awk '/^uv==/ { inside = 1; print; next } /^[^ ]/ { inside = 0 } inside' requirements.lock > $(VENV)/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt
	@$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . -e bench
	@$(BIN)/python -m tools.kernel_library
	@$(BIN)/python -m compileall -q src bench  # where bytecode is not kept by itself, commands would compile at every start
	@touch $@

# pip alone, without uv and without --quiet: less to fetch, and it shows what it fetches from the first second on.
$(RUN_STAMP): requirements-up.lock pyproject.toml
	@$(info Making $(VENV) with what `windlass up` needs: some 75 MB to fetch, once.)
	@test -n '$(PYTHON)' || { echo 'Windlass needs Python 3.11 or newer with venv and pip; none was found.' >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --no-compile --require-hashes -r requirements-up.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $@

test: lint cluster page kernels ## everything that must hold: lint, types, layers, tests
	$(BIN)/pytest -n $(WORKERS)

test-feasibility: env cluster ## thousands of random pods: the same nodes feasible as kube-scheduler finds
	WINDLASS_FEASIBILITY_SEED=$${WINDLASS_FEASIBILITY_SEED:-$$(date +%s)} \
	  WINDLASS_FEASIBILITY_PODS=$${WINDLASS_FEASIBILITY_PODS:-5000} $(BIN)/pytest tests/real_cluster/test_feasibility.py

MUTANTS_TOOLS := cosmic-ray==8.7.0 parso==0.8.7 coverage==7.10.7

.mutants-tools: Makefile
	$(BIN)/pip install --quiet --no-deps --upgrade --target $@ $(MUTANTS_TOOLS) && touch $@

worlds: env ## N whole clusters at random on the virtual clock (SEED for the same again, LOG=1 for what happened, MOVES=1 with asks, LIVE=up|kube)
	PYTHONHASHSEED=0 PYTHONPATH=.:tests $(BIN)/python -m tests.worlds --count $(or $(N),100) $(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs $(JOBS)) $(if $(LOG),--log) $(if $(LIVE),--live $(LIVE)) $(if $(MOVES),--moves)

loop-seeds: env ## N seeds of the whole control loop on a faulty network (SEED for the same again, LOG=1 for what happened)
	PYTHONHASHSEED=0 PYTHONPATH=.:tests $(BIN)/python -m tests.loop --count $(or $(N),100) $(if $(SEED),--seed $(SEED)) $(if $(LOG),--log)

loop-unrepaired: env ## takes repairs of the control loop out, one at a time, and counts the seeds that it takes to notice
	PYTHONHASHSEED=0 PYTHONPATH=.:tests $(BIN)/python -m tests.loop.unrepaired $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: env ## N inputs that are nearly right: objects, patches, requests, worlds, configurations, dumps (SEED for the same again)
	PYTHONPATH=.:tests:bench $(BIN)/python -m tests.fuzz --count $(or $(N),5000) $(if $(SEED),--seed $(SEED)) $(ARGS)

load: env ## windlass up under 1,000 watchers, 200 clients and hostile requests: how long a small GET takes, how much memory
	PYTHONPATH=.:tests:bench $(BIN)/python -m tests.embedded.load $(ARGS)

history: env ## N recorded histories of the embedded store, its process killed again and again, judged by a model (SEED for the same again)
	PYTHONPATH=.:tests:bench $(BIN)/python -m tests.embedded.store.history_play --count $(or $(N),200) $(if $(SEED),--seed $(SEED))

history-size: env ## 30 days of a node's samples and of a centre of 5,000 GPUs: bytes, CPU, query times
	PYTHONPATH=. $(BIN)/python -m tests.telemetry.history_size $(ARGS)

trends: env ## N made curves a family: how often the memory leak rules are wrong, and how soon they are right (SEED for the same again)
	PYTHONPATH=. $(BIN)/python -m tests.telemetry.trend_rates --count $(or $(N),200) $(if $(SEED),--seed $(SEED))

worlds-unrepaired: env ## takes repairs out, one at a time, and counts the worlds that it takes to notice
	PYTHONHASHSEED=0 PYTHONPATH=.:tests $(BIN)/python -m tests.worlds.unrepaired $(if $(SEED),--seed $(SEED)) $(ARGS)

victims: env ## N worlds at random: what evictions lose, beside the least that an exact solver finds (SEED for the same again)
	PYTHONHASHSEED=0 $(BIN)/python -m tests.victims --count $(or $(N),500) $(if $(SEED),--seed $(SEED))

operator-fleet: env ## a driver change on N nodes with failing ones and repairs, on the virtual clock (SEED for the same again)
	PYTHONPATH=.:tests $(BIN)/python -m tests.operator.fleet_play --count $(or $(N),1000) --seed $(or $(SEED),1)

why-cases: env ## the score of `why` on recorded failures and on variants of them (CASES for a folder of dumps with expected.json)
	PYTHONPATH=. $(BIN)/python -m tests.diagnose_fresh.score $(CASES) $(ARGS)
	PYTHONPATH=. $(BIN)/python -m tests.diagnose_fresh.variants $(CASES) $(ARGS)

why-live: env ## faults injected into `windlass up` (ON=kube: a real control plane), ten at a time; PAUSE seconds between two questions
	PYTHONPATH=.:tests $(BIN)/python -m tests.why_live --on $(or $(ON),up) --pause $(or $(PAUSE),300) $(if $(ONLY),--only $(ONLY))

mutants: env .mutants-tools ## a sample of small changes to the rooms that decide: which would no test notice?
	PYTHONPATH=.:.mutants-tools $(BIN)/python -m tools.mutants $(ARGS)

# The newest minor is what `make test` runs on; this adds the oldest that Windlass supports.
test-matrix: env cluster ## the cluster tests on Kubernetes 1.36 and 1.34
	$(BIN)/pytest -n $(WORKERS) tests/real_cluster $(wildcard tests/live)
	WINDLASS_TEST_KUBERNETES=1.34 $(BIN)/python -m tests.real_cluster.binaries
	WINDLASS_TEST_KUBERNETES=1.34 $(BIN)/pytest -n $(WORKERS) tests/real_cluster $(wildcard tests/live)

cluster: env ## the programs of the test cluster, built once (minutes) and kept in the user's cache
	@tools/test-packages
	@$(BIN)/python -m tests.real_cluster.binaries

# The README's commands are among the tests. Nothing is taken along but what is committed.
stranger: ## make test on a clean clone of what is committed, from nothing
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	  git clone --quiet . "$$folder/windlass" && $(MAKE) -C "$$folder/windlass" test

lint: env ## style, types, and which room may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config .importlinter

format: env ## rewrite the code in the project's style
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

bench: env ## the benchmarks, with every published number
	$(BIN)/windlass bench simulate

docs: env ## write docs/reference from the code, then check every link
	$(BIN)/python -m tools.reference docs/reference
	$(BIN)/python tools/check_links.py

kernels: env ## compile the placement kernels for this machine (at once, if nothing changed)
	@$(BIN)/python -m tools.kernel_library

page: env ## build the web page (at once, if nothing changed)
	@$(BIN)/python tools/build_page.py

up: $(RUNNING) ## a working GPU cluster on this machine, simulated; ARGS goes to `windlass up`
	@$(BIN)/python tools/build_page.py || echo 'The page could not be built; the cluster starts without it.' >&2
	@exec $(BIN)/windlass up $(ARGS)

# The second file is what `make up` installs: the same versions, without the developers' tools.
lock: env ## resolve requirements.lock and requirements-up.lock again from pyproject.toml
	$(COMPILE) --extra all --group dev pyproject.toml -o requirements.lock
	$(COMPILE) --extra up --group build --group kernels pyproject.toml --constraints requirements.lock -o requirements-up.lock
	for role in scheduler node; do $(COMPILE) --extra $$role --group build pyproject.toml \
	  --constraints requirements.lock -o deploy/requirements-$$role.lock || exit 1; done

release: env page kernels ## wheels, images (as root, on Debian), chart, bills of materials, hashes and an archive of all into dist/VERSION
	$(BIN)/python -m tools.release $(ARGS)

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) build dist web/node_modules src/windlass/web/static src/windlass/placement/kernels/native .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src bench tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
