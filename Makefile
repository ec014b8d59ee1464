# Every target sets up what it needs, and says so when that takes something from the distribution.
# ARGS is handed on: make test ARGS="-k forecast", make run ARGS="--help". PYTHON=python3.12 chooses another interpreter.

MAKEFLAGS += --no-print-directory
BIN := .venv/bin
SCRIPTS := $(shell git ls-files scripts .ci | xargs grep -l '^\#!/usr/bin/env bash') scripts/venv.sh
# From the environment PYTHON is only a fallback, see scripts/setup.
ifeq ($(origin PYTHON),command line)
SETUP_PYTHON := $(PYTHON)
endif

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev setup-prometheus setup-cc setup-ebpf setup-vm setup-pictures setup-deploy setup-engines run test demo dashboards test-vm test-engines test-deploy generate image package lint format types secrets secrets-baseline check bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## make .venv with the daemon in it (.venv/bin/oomcast)
	@scripts/setup run $(SETUP_PYTHON)

setup-dev: ## the same, with what tests and checks need
	@scripts/setup dev $(SETUP_PYTHON)

# A machine that cannot have Prometheus runs the other tests: those that need it skip, and say so.
setup-prometheus:
	@scripts/setup prometheus || echo "setup: going on without Prometheus" >&2

setup-cc:
	@scripts/setup cc || echo "setup: going on without a compiler" >&2

setup-ebpf:
	@scripts/setup ebpf || echo "setup: going on without eBPF" >&2

setup-vm:
	@scripts/setup vm || echo "setup: going on without a virtual machine" >&2

setup-pictures:
	@scripts/setup pictures || echo "setup: going on without pictures of the dashboards" >&2

setup-deploy:
	@scripts/setup deploy || echo "setup: going on without what units, images and charts are checked with" >&2

setup-engines:
	@scripts/setup engines || echo "setup: going on without an inference engine" >&2

run: setup ## run the daemon in the foreground; Ctrl-C ends it
	@$(BIN)/oomcast run $(ARGS)

# Most of the time tests wait, so more of them run at once than there are cores; but for those that measure.
test: setup-dev setup-prometheus setup-cc setup-ebpf setup-pictures ## run all tests
	@if [ -n '$(subst ','\'',$(ARGS))' ]; then exec $(BIN)/python -m pytest $(ARGS); fi; \
	$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) --dist loadfile -m 'not alone' && others=0 || others=1; \
	$(BIN)/python -m pytest -m alone && exit $$others

image: ## build the container images, with docker, podman or buildah
	@scripts/build-image $(ARGS)

package: ## build the Debian package, into dist/
	@scripts/build-deb $(ARGS)

demo: setup setup-cc ## play the crash of an engine on long prompts, in a minute and a half (ARGS="--keep")
	@PYTHONPATH=demo:tests $(BIN)/python -m incident $(ARGS)

dashboards: setup-dev setup-prometheus setup-cc setup-ebpf setup-pictures ## draw every dashboard with real data, before and after a crash: six minutes
	@PYTHONPATH=demo:grafana:tests $(BIN)/python -m gallery $(ARGS)

e2e: setup-dev setup-prometheus setup-cc ## play the incident at several nodes, from the first long prompt to the page, in two and a half minutes (OOMCAST_SEED=N)
	@$(BIN)/python -m pytest -rP tests/e2e/test_incident.py $(ARGS)

test-vm: setup-dev setup-cc setup-vm ## run the daemon on cgroup v2 in a virtual machine: x86-64, root, 140 MB of disk, under four minutes
	@$(BIN)/python -m pytest tests/vm $(ARGS)

test-engines: setup-dev setup-engines ## run the tests that drive a real vLLM on the CPU: 3.4 GB of disk, some 6 minutes the first time
	@$(BIN)/python -m pytest tests/engines $(ARGS)

test-deploy: setup-dev setup-prometheus setup-cc setup-ebpf setup-vm setup-deploy ## check and try the unit, the package, the image and the chart: 0.9 GB, some 8 minutes
	@if [ -n '$(subst ','\'',$(ARGS))' ]; then exec $(BIN)/python -m pytest tests/deploy $(ARGS); fi; \
	$(BIN)/python -m pytest -n $$(nproc) --dist loadfile tests/deploy -m 'not alone' && others=0 || others=1; \
	$(BIN)/python -m pytest tests/deploy -m alone && exit $$others

generate: setup ## write the rules, the dashboards, the copies in the chart and their documentation anew, from the tables
	@PYTHONPATH=grafana $(BIN)/python scripts/generate.py

lint: setup-dev ## check style: ruff and shellcheck
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/shellcheck -x $(SCRIPTS)

format: setup-dev ## format the code, and fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup-dev ## check types: mypy --strict
	@$(BIN)/mypy

secrets: setup-dev ## fail on a secret that is not in .secrets.baseline
	@git ls-files -z --cached --others --exclude-standard | xargs -0 scripts/secrets
	@echo "no new secrets"

secrets-baseline: setup-dev ## rewrite .secrets.baseline, to be reviewed
	@$(BIN)/detect-secrets scan --no-verify --baseline .secrets.baseline

check: lint types secrets test ## everything that CI checks

bench: setup ## measure the daemon beside floors and peers (ARGS="scrape"); takes root, and half an hour
	@$(BIN)/python bench/run.py $(ARGS)

lock: setup-dev ## rewrite constraints.txt with the newest versions
	@$(BIN)/python scripts/lock.py

clean: ## remove the environments and all that tools left behind
	@rm -rf .venv .venv-engines build dist grafana/pictures/node_modules grafana/pictures/dist oomcast.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find daemon collectors demo grafana tests scripts bench -path "*/node_modules" -prune -o -name __pycache__ -prune -exec rm -rf {} +
