# `make` alone lists the targets. Everything runs in .venv, which the first target that needs it sets up.

VENV := .venv
VLLM := .vllm
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The oldest supported version first: it is the one that constraints.txt was tried with.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$python && break; done)
PYTEST := $(BIN)/python -m pytest --quiet
# A vLLM of your own, or the one that is set up here.
AGENTLOAD_VLLM ?= $(CURDIR)/$(VLLM)/bin/vllm
export AGENTLOAD_VLLM
# Tests start hundreds of processes: each module is compiled once, whatever this shell says.
unexport PYTHONDONTWRITEBYTECODE
GET_VLLM = test -x "$(AGENTLOAD_VLLM)" || test "$(AGENTLOAD_VLLM)" != "$(CURDIR)/$(VLLM)/bin/vllm" || benchmarks/real_vllm/setup.sh $(VLLM)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format types layers unit again record test-slow slow-beside slow-alone test-browser test-cron test-ray test-vllm demo-vllm calibration calibration-full bench reports traces size coverage fuzz kills soak mutants reader sanitize speedups wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## set up .venv (needs Python 3.11 or newer and a package index)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found" >&2; \
	  echo "hint: install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "error: $(PYTHON) cannot make a virtual environment" >&2; \
	  echo "hint: install its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "setting up $(VENV) with $$($(BIN)/python --version)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,images,tokenizers]'
	@touch $@

demo: $(READY) ## see seven decisions in a minute: one over real sockets, six in virtual time
	@$(BIN)/agentload demo --out reports/demo

# Types take one core for a minute, and tests wait half of their time.
test: $(READY) ## lint, format check, types, layers, tests
	@$(MAKE) --keep-going --jobs 2 types lint layers unit

lint: $(READY) ## check style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(READY) ## mend style and format where that can be done safely
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

types: $(READY) ## check types
	$(BIN)/mypy

layers: $(READY) ## check which room imports which
	$(BIN)/lint-imports --no-logo

# Processes share the cores: threads of theirs would only wait for each other.
unit slow-beside coverage: export OPENBLAS_NUM_THREADS := 1

# Half of the time tests wait for servers and clocks: more processes than cores.
unit: $(READY) ## run the tests
	$(PYTEST) --forks 6 --durations=10

again: $(READY) ## run what failed last once more
	HYPOTHESIS_PROFILE=slow $(PYTEST) --last-failed --last-failed-no-failures none -m ''

record: $(READY) ## replay recorded command lines, and print every difference (ARGS='--write --only help' writes recordings)
	$(BIN)/python -m tests.recorded.record $(ARGS)

test-slow: slow-beside slow-alone ## run the tests that take longer than a few seconds

# The longest of these wait for what hangs or is killed: more processes than cores. Properties are looked at ten times longer.
slow-beside: $(READY)
	HYPOTHESIS_PROFILE=slow $(PYTEST) -m '(slow or hypothesis) and not alone' --forks 3 --durations=10

slow-alone: $(READY)
	$(PYTEST) -m 'slow and alone' --durations=10

test-browser: $(READY) ## look at the report in a headless browser (Debian: apt-get install chromium)
	@command -v chromium >/dev/null || echo "skipped: no chromium on this machine (Debian: apt-get install chromium)"
	$(PYTEST) -m browser

test-cron: $(READY) ## let a real cron daemon execute a job (needs root; Debian: apt-get install cron)
	@command -v cron >/dev/null || echo "skipped: no cron on this machine (Debian: apt-get install cron)"
	$(PYTEST) -m cron

test-ray: $(READY) ## play from three nodes of Ray on loopback addresses, in .ray beside .venv (17 s to set up, 600 MB)
	@test -x .ray/bin/ray || { $(BIN)/python -m venv .ray && .ray/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[dev,ray]'; } || { rm -rf .ray; echo "0 passed, all skipped: Ray cannot be installed here"; }
	@test ! -x .ray/bin/ray || .ray/bin/python -m pytest -m ray tests/remote -rs --durations=5

calibration: $(READY) ## grade the advisor, decisions and the watch in worlds and on histories whose truth is known (minutes)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.advisor.calibration
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.decision.calibration
	$(BIN)/python -m tests.watch.calibration

calibration-full: $(READY) ## the same with 1,000 draws a cell, continued where it was interrupted (a quarter of an hour)
	@mkdir -p build
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.advisor.calibration --full --into build/calibration.jsonl
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.decision.calibration --number 1000 --into build/decisions.jsonl
	$(BIN)/python -m tests.watch.calibration

test-vllm: $(READY) ## run the tests that need a real vLLM: the one AGENTLOAD_VLLM names, else it is set up in .vllm (3 GB, minutes)
	@$(GET_VLLM) || true
	$(PYTEST) -m vllm tests/vllm -rs --durations=10

demo-vllm: $(READY) ## decide on a real vLLM without a GPU, in 45 minutes; where it comes from, see test-vllm
	@$(GET_VLLM)
	@$(BIN)/python -m benchmarks.real_vllm.demo

bench: $(READY) ## measure what the documentation claims (some minutes)
	@for each in engine simulate published traces importers store serve ui chunk transport hostile; do echo "== $$each"; $(BIN)/python -m benchmarks.$$each || exit 1; done
	@test ! -e build/speedups/agentload_reader.so || { echo "== transport, who reads"; $(BIN)/python -m benchmarks.transport --clients agentload --paths interpreter,thread; }

reports: $(READY) ## play the tour's decisions again, read the rows of servers, and keep their reports in reports/
	@$(BIN)/python -m tests.report.kept

traces: $(READY) ## write the shipped traces anew, to the byte
	$(BIN)/python -m tests.workloads.shipped traces

size: $(READY) ## print what a reader of each room meets, and the limits (ARGS=--check, --ledger, --lists, --names, --complex)
	@$(BIN)/python -m tools.size $(ARGS)

coverage: $(READY) ## run the tests and print the share of branches that they take in each room, in processes that they start too
	-$(PYTEST) --forks 2 --cov --cov-report=
	@$(BIN)/python -m tools.covered

fuzz: $(READY) ## feed every reader with what nobody would write (MINUTES=10 in all, TARGETS='sse trace'); atheris guides it where it is installed
	@nice $(BIN)/python -m tools.fuzz --minutes $(or $(MINUTES),10) $(TARGETS)

kills: $(READY) ## kill what measures and what loads at random moments, and count what is lost (N=100)
	@$(BIN)/python -m tools.kills --number $(or $(N),100)

soak: $(READY) ## play beside servers that fail in every way, and one that does not, as fast as the machine allows (MINUTES=30)
	@$(BIN)/python -m tools.soak --minutes $(or $(MINUTES),30)

mutants: $(READY) ## break one thing at a time in a room and see whether its tests notice (ROOM=dispatch N=60 SEED=0 TESTS=…)
	@$(BIN)/python -m tools.mutants $(ROOM) $(if $(N),--number $(N)) $(if $(SEED),--seed $(SEED)) $(if $(TESTS),--tests $(TESTS))

reader: $(READY) ## compile the thread that reads sockets into build/speedups (needs a C compiler; seconds)
	@$(MAKE) --silent --file speedups/reader.mk INTO=$(CURDIR)/build/speedups
	PYTHONPATH=build/speedups $(BIN)/python -c "from agentload.live.reader import who_reads; assert who_reads() == ('thread', ''), who_reads()"

sanitize: ## drive the thread that reads sockets under ASan, UBSan and TSan (needs gcc or clang; half a minute)
	@$(MAKE) --silent --file speedups/reader.mk sanitize INTO=$(CURDIR)/build/sanitize

speedups: $(READY) ## compile the busiest modules into build/speedups and run their rooms' tests against them (needs a C compiler; minutes)
	$(BIN)/python speedups/setup.py --quiet build_ext --build-lib $(CURDIR)/build/speedups --build-temp $(CURDIR)/build/speedups-o
	PYTHONPATH=build/speedups $(BIN)/python -c "import agentload; assert agentload.COMPILED.endswith('modules'), agentload.COMPILED"
	PYTHONPATH=build/speedups $(PYTEST) tests/dispatch tests/emulator tests/live tests/serve tests/virtual tests/test_compiled.py tests/test_differential.py

wheel: $(READY) ## build dist/*.whl and dist/*.tar.gz
	$(BIN)/python -m build --no-isolation

clean: ## remove what the other targets made, .venv included
	rm -rf $(VENV) $(VLLM) .ray build dist reports/demo .coverage* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find agentload advisor tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
