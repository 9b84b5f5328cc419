# SPDX-License-Identifier: MIT
# The commands of the project; `make help` lists them.
SHELL := /bin/bash
BIN := .venv/bin

.PHONY: help setup check test test-fast lint lock bench docs clean image spack spack-setup spack-verify spack-lock spack-pin spack-here spack-supply spack-mirror spack-push

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## make .venv from the lock (LANE=ucx-current adds the second lane)
	@ci/setup.sh

check: setup ## run the checks on this machine, print verdicts, write a report (ARGS=... for busbar check)
	@$(BIN)/busbar check $(if $(LANE),--lane $(LANE)) $(ARGS)

# One process for each core; what starts MPI shares one of them, so that its ranks meet no others.
WORKERS := --numprocesses=auto --maxprocesses=8 --dist=loadgroup

test-fast: setup lint ## the tests that start no MPI, ReFrame or compiler, in under a minute
	@$(BIN)/pytest $(WORKERS) -m "not run and not lab"

test: setup lint ## run the test suite (BUSBAR_LAB=1 with Slurm and containers, which it installs; ARGS=... for pytest)
ifdef ARGS
	@$(BIN)/pytest $(ARGS)
else
	@$(BIN)/pytest $(WORKERS) $(if $(BUSBAR_LAB),-m "not lab")
	@$(if $(BUSBAR_LAB),$(BIN)/pytest -m lab)
endif

lint: setup ## format and lint checks, types, import contracts, shell scripts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache
	@git ls-files -z '*.sh' .ci/run ci/lab ':!*.conf' | xargs -0 $(BIN)/shellcheck

image: setup ## build a container image (STACK=host|cuda|rocm, FORMAT=sif|oci, DELIVERY=wheels|spack, LANE=, SITE=, BASE=local, BUILDER=; docs/containers.md has the rest)
	@ci/images/build.sh

spack: ## install a site's stack from its lock (SITE=, LANE=, PREFIX=, BUILDCACHE=, MIRROR=, ARGS=); no SITE: host stack
	@ci/spack/setup.sh
	@ci/spack/install.sh "$(SITE)" "$(LANE)" $(ARGS)

spack-setup: ## only set up the pinned Spack and recipes (then: . .spack/env.sh)
	@ci/spack/setup.sh

spack-verify: setup ## solve every lock again and compare, audit and lint the recipes (ENVS="local p4d/ucx-current")
	@ci/spack/setup.sh
	@ci/spack/verify.sh $(ENVS)

spack-lock: ## solve again and write the locks (ENVS=...)
	@ci/spack/setup.sh
	@ci/spack/lock.sh $(ENVS)

spack-pin: ## take a changed gpu_aware into its recipe and every lock, without a solve
	@ci/spack/setup.sh
	@. .spack/env.sh && spack -e site/local python ci/spack/pin.py

spack-here: setup ## really build, test, push and reinstall what can be built from Debian's archives (ARGS=SPECS)
	@ci/spack/setup.sh
	@ci/spack/here.sh $(ARGS)

spack-mirror: ## fetch the sources of a lock (SITE=, LANE=) into DIR= (build/spack-mirror)
	@ci/spack/setup.sh
	@ci/spack/mirror.sh "$(SITE)" "$(LANE)" "$(DIR)"

spack-supply: ## lay what Spack builds an image of a site from (SITE=, LANE=, or ENVIRONMENT=) into DIR=, for a builder without a network
	@ci/spack/setup.sh
	@ci/spack/supply.sh "$(or $(ENVIRONMENT),site/$(SITE)$(if $(filter-out ucx-1.14,$(LANE)),/$(LANE)))" "$(DIR)"

spack-push: ## push what is installed of a site (SITE=, LANE=) to the signed cache BUILDCACHE=
	@ci/spack/setup.sh
	@ci/spack/push.sh "$(SITE)" "$(LANE)" "$(BUILDCACHE)"

# uv is only needed here; it writes the locks for every supported Python at once.
UV_COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet
lock: ## resolve the requirements again and write the locks (needs uv)
	$(UV_COMPILE) --extra wheels --extra dev pyproject.toml -o requirements.lock
	$(UV_COMPILE) locks/ucx-current.in -o locks/ucx-current.txt
	$(UV_COMPILE) locks/cuda.in -o locks/cuda.txt
	$(UV_COMPILE) locks/spack.in -o locks/spack.txt
	$(UV_COMPILE) locks/spack-style.in -o locks/spack-style.txt

bench: setup ## time what has a bar: busbar explain on the log of 1,024 ranks, busbar check against its jobs bare (ARGS=... for it)
	@$(BIN)/python tests/bench/explain_large.py
	@$(BIN)/python tests/bench/harness_cost.py $(ARGS)

docs: setup ## write the pages of docs/reference/ from the code
	@$(BIN)/python -m ci.docs.reference

clean: ## remove what the targets made
	rm -rf .venv .spack busbar-report output stage perflogs
