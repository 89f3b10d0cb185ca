# The one entry: make audit, make test, make check, make docs, make proof.
PYTHON ?= python3
ENV := .venv
BIN := $(ENV)/bin
TORCH := 2.13.0
TARGET := verl==0.9.1
# --no-compile: bytecode of what is imported is made at its first import; compiling all of torch takes half a minute.
INSTALL := $(ENV)/bin/python -m pip install -q --disable-pip-version-check --no-compile
EXPECTATION = expect/$(subst ==,-,$(TARGET)).toml
STAMP := $(ENV)/.ready-$(shell cat requirements/lock.txt pyproject.toml | cksum | cut -d' ' -f1)

export OMP_NUM_THREADS := 1

.PHONY: setup audit test test-all coverage check lint wheel-env wheel wheel-tests seeds remedies train train-proof expect recall proof mutants framework-mutants bench bench-train bench-costs docs clean

setup: $(STAMP)

$(STAMP):
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else "python3 is %d.%d, expected 3.11 or newer: make PYTHON=/path/to/python3.11" % v)'
	rm -rf $(ENV)
	$(PYTHON) -m venv $(ENV)
	$(INSTALL) torch==$(TORCH)
	$(INSTALL) -r requirements/lock.txt
	$(INSTALL) --no-deps -e .
	touch $@

audit: setup
	$(BIN)/rl-sentinel audit $(TARGET) --expect $(EXPECTATION)

test: setup
	$(BIN)/python -m pytest -n 2 -m "not slow"

# Also what takes longest: several processes, real time-outs, whole training runs, the audit of our own library.
test-all: setup
	$(BIN)/python -m pytest -n 2

coverage: setup
	$(BIN)/python -m pytest -n 2 -m "not slow" --cov --cov-report=term:skip-covered

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test-all wheel

# The wheel and the sdist, and a second clean environment with the wheel.
wheel-env: setup
	sh scripts/wheel_env.sh $(PYTHON) $(TORCH)

# The wheel, tested in that environment, away from the source tree.
wheel: wheel-env
	$(MAKE) wheel-tests

wheel-tests:
	sh scripts/wheel.sh

# Faults that the package index has: found in the faulty release, fixed in a later one.
seeds: setup
	for seed in seeds/*.toml; do echo "seed $$seed" && sh scripts/seed.sh "$$seed" || exit 1; done

# The corrected functions, registered in the real packages.
remedies: setup
	$(BIN)/python scripts/remedies.py verl==0.9.1
	$(BIN)/python scripts/remedies.py skyrl==0.3.0

# A tiny Llama learns to sort: minutes on two cores, most of them its warm start, which the cache keeps.
train: setup
	$(BIN)/rl-sentinel train recipes/sort.toml

# Every experiment over five seeds, an hour or so; goes on where it was stopped, and writes docs/train-proof.md.
train-proof: setup
	$(BIN)/python scripts/train_proof.py

# The documentation site, in build/site/site; a broken link ends it with an error.
docs: setup
	test -x .venv-docs/bin/zensical || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install -q --disable-pip-version-check -r requirements/docs.txt
	$(BIN)/python scripts/site_source.py build/site
	.venv-docs/bin/zensical build --strict --config-file build/site/zensical.toml

clean:
	rm -rf $(ENV) .venv-wheel .venv-docs build dist

# Rewrite the expectation of `make audit`, the target's section of docs/findings.md, and for verl the findings that the
# test of the text report renders, from an audit; read the difference before it is committed.
expect: setup
	-$(BIN)/rl-sentinel audit $(TARGET) --level hazard --json expect/.report.json
	$(BIN)/python scripts/expectation.py expect/.report.json > expect/.expectation && mv expect/.expectation $(EXPECTATION)
	$(if $(filter verl%,$(TARGET)),$(BIN)/python scripts/expectation.py --findings expect/.report.json > tests/report/verl-0.9.1.json)
	$(BIN)/python scripts/findings_page.py expect/.report.json
	rm -f expect/.report.json

# Which known bugs an audit reports before their fix and not after it: between releases of the package index, or with
# GIT=FOLDER CORPUS=docs/bugs-between-commits.jsonl PAGE=docs/recall-commits.md between the commits of git histories.
CORPUS := docs/known-bugs.jsonl
PAGE := docs/recall.md
recall: setup
	$(BIN)/rl-sentinel recall $(CORPUS) $(if $(GIT),--git $(GIT)) --page $(PAGE)

# What is longer, or needs git histories: SLIME=PATH AREAL=PATH TRL=PATH SKYRL=PATH make proof. Writes docs/proof.md.
proof: setup
	PYTHONPATH=scripts $(BIN)/python scripts/proof

# Faults put into the signal library, one at a time, and the laws alone asked; writes docs/mutants.md.
mutants: setup
	PYTHONPATH=scripts $(BIN)/python -m mutants

# Faults planted into a framework's own path functions, and the audit asked: make framework-mutants TARGET=slime@PATH#REV.
# Rewrites the target's section of docs/framework-mutants.md.
framework-mutants: setup
	PYTHONPATH=scripts $(BIN)/python -m mutants.frameworks '$(TARGET)'

# Our functions beside those of released frameworks, in an environment of their own; rewrites benchmarks/README.md.
bench: setup
	sh scripts/bench.sh $(PYTHON) $(TORCH)

# Our trainer beside TRL's, a step each in turn, in the same environment; rewrites benchmarks/trainers/README.md.
bench-train: setup
	sh scripts/bench.sh $(PYTHON) $(TORCH) benchmarks.trainers

# Memory and time of parts of the trainer: log-probs, rewards, several processes; rewrites benchmarks/costs/README.md.
bench-costs: setup
	$(BIN)/python -m benchmarks.costs
