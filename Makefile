# SPDX-License-Identifier: MIT
# The commands of the project; run `make help` for a list.
SHELL := /bin/bash
BIN := .venv/bin
# Images set it; without compiled modules each Python that a test starts spends most of its time on compiling ours.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup dev check test test-fast test-night lint lock licenses pins coverage bench bench-statistics fit published fuzz mutants docs clean docs-site completion image sbom bundle bundle-verify bundle-install spack spack-setup spack-verify spack-lock spack-pin spack-externals spack-concretize spack-compile spack-supply spack-mirror spack-push

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## create .venv from the lock (LANE=ucx-current adds the second lane)
	@ci/setup.sh

dev: ## create .venv with the tools of `make test` and `make lint` as well
	@DEV=1 ci/setup.sh

check: setup ## run the checks on this machine, print verdicts, write a report (ARGS=options of busbar check)
	@$(BIN)/busbar check $(if $(LANE),--lane $(LANE)) $(ARGS)

# One process more than cores, as many tests wait for jobs or watch processes. Tests that start MPI may meet: none judges how fast the machine is just now.
WORKERS := --numprocesses=$(shell expr $$(nproc) + 1) --maxprocesses=8 --dist=worksteal
PURE := $(WORKERS) -m "not run and not lab"

test-fast: dev lint ## run the tests that start no MPI, ReFrame, compiler or slow program, in two minutes
	@$(BIN)/pytest $(PURE)

test: dev lint ## run the test suite, in minutes (BUSBAR_LAB=1 also with Slurm and containers, which it installs, BUSBAR_LAB=all with every case and the long tests; ARGS=options of pytest)
ifdef ARGS
	@$(BIN)/pytest $(ARGS)
else
	@ci/test.sh $(WORKERS)
endif

test-night: ## run what is too long for each commit, in hours: .ci/nightly, as root on Debian 12
	@.ci/nightly

coverage: dev ## run the tests of test-fast, and refuse a share of covered lines below the floor
	@$(BIN)/pytest $(PURE) --cov

fit: dev ## fit the numbers of the model of collectives to all published readings and our own
	@$(BIN)/python -m tests.bench.fit

published: dev ## compare published readings with limit and band, by class
	@$(BIN)/python -m tests.bench.published_table

# SC1097: in a job script NCCL_IB_HCA==NAME is right, it matches the whole name of a port.
lint: dev ## check format, style, types, import contracts and shell scripts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache
	@git ls-files -z '*.sh' .ci ci/lab ci/slurm ':!*.conf' ':!ci/slurm/scrontab' ':!tests/golden/schedulers' | PATH="$(BIN):$$PATH" xargs -0 shellcheck -x -e SC1097

image: dev ## build a container image (STACK=host|cuda|rocm, FORMAT=sif|oci, DELIVERY=wheels|spack, LANE=, SITE=, BASE=local, BUILDER=; see docs/containers.md)
	@ci/images/build.sh

sbom: dev ## write the bill of materials of a site (SITE=, LANE=) or an image (IMAGE=) as build/sbom/NAME.cdx.json (CycloneDX 1.6) and NAME.spdx.json (SPDX 2.3)
	@ci/sbom.sh "$(SITE)" "$(LANE)" "$(IMAGE)"

bundle: dev ## pack all that a machine without a network needs to install and test Busbar and the stack of a site (SITE=, LANE=, OUTPUT=, KEY=ssh key, IMAGES=, SPACK=no)
	@ci/bundle.sh "$(SITE)" "$(LANE)" "$(OUTPUT)"

bundle-verify: ## check every byte of a bundle, and its signature (FILE=, SIGNERS=)
	@ci/unbundle.sh verify "$(FILE)" "$(SIGNERS)"

bundle-install: ## verify a bundle, and unpack it into a new directory (FILE=, DIR=, SIGNERS=)
	@ci/unbundle.sh install "$(FILE)" "$(DIR)" "$(SIGNERS)"

spack: setup ## install the stack of a site from its lock (SITE=, LANE=, PREFIX=, BUILDCACHE=, MIRROR=, ARGS=); the host stack without SITE
	@[ -z "$(SITE)" ] || $(BIN)/busbar site show "$(SITE)" >/dev/null
	@ci/spack/setup.sh
	@ci/spack/install.sh "$(SITE)" "$(LANE)" $(ARGS)

spack-setup: ## set up the pinned Spack and recipes only (then: . .spack/env.sh)
	@ci/spack/setup.sh

spack-verify: setup ## solve every lock again and compare; audit and lint the recipes (ENVS="host cuda-sm_90/ucx-current")
	@ci/spack/setup.sh
	@ci/spack/verify.sh $(ENVS)

spack-lock: setup ## solve again and write the locks (ENVS=...)
	@ci/spack/setup.sh
	@ci/spack/lock.sh $(ENVS)

pins: setup ## print which packages of the Spack locks are behind their newest release, deprecated or vulnerable; without a network
	@$(BIN)/python -m ci.spack.locks pins $(SITE)

spack-externals: setup ## find this machine's compiler, CUDA, ROCm, EFA, Slurm, Cray MPICH for Spack (SITE=, GCC=gcc-13, TARGET=zen3)
	@ci/spack/setup.sh
	@. .spack/env.sh && $(BIN)/python -m ci.spack.machine_scope "$$BUSBAR_SPACK_SCOPE" $(if $(SITE),--site $(SITE)) $(if $(GCC),--gcc $(GCC)) $(if $(TARGET),--target $(TARGET))

spack-concretize: setup ## concretize the environment of a site on this system, and check its lock (SITE=, LANE=)
	@ci/spack/setup.sh
	@ci/spack/concretize.sh "$(SITE)" "$(LANE)"

spack-pin: setup ## update the recipe of gpu_aware and every lock after a change of its sources, without a solve
	@ci/spack/setup.sh
	@$(BIN)/python ci/spack/gpu_aware_source.py
	@ci/spack/pin.sh

spack-compile: setup ## compile and test what package indexes allow, and name what they do not (ARGS=parts, see ci/spack/compile.sh)
	@ci/spack/setup.sh
	@ci/spack/compile.sh $(ARGS)

spack-mirror: setup ## download the sources of a lock (SITE=, LANE=) into DIR= (build/spack-mirror)
	@ci/spack/setup.sh
	@ci/spack/mirror.sh "$(SITE)" "$(LANE)" "$(DIR)"

spack-supply: setup ## write all that Spack needs to build an image of a site (SITE=, LANE=, or ENVIRONMENT=) without a network into DIR=
	@ci/spack/setup.sh
	@environment="$(ENVIRONMENT)"; : "$${environment:=$$($(BIN)/busbar site spack "$(SITE)" --image $(if $(LANE),--lane $(LANE)))}" && ci/spack/supply.sh "$$environment" "$(DIR)"

spack-push: setup ## push the installed packages of a site (SITE=, LANE=) to BUILDCACHE=, signed unless it is oci:// (BASE=image)
	@ci/spack/setup.sh
	@ci/spack/push.sh "$(SITE)" "$(LANE)" "$(BUILDCACHE)"

# Only this target needs uv, which resolves for all supported Python versions at once.
UV_COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet
lock: ## resolve the requirements again and write the locks (needs uv)
	$(UV_COMPILE) --extra build --extra check --extra wheels --extra dev pyproject.toml -o locks/dev.txt
	$(UV_COMPILE) --extra build --extra check --extra wheels --constraint locks/dev.txt pyproject.toml -o requirements.lock
	$(UV_COMPILE) locks/ucx-current.in -o locks/ucx-current.txt
	$(UV_COMPILE) locks/cuda.in -o locks/cuda.txt
	$(UV_COMPILE) --constraint locks/dev.txt locks/docs.in -o locks/docs.txt
	$(UV_COMPILE) locks/spack.in -o locks/spack.txt
	$(UV_COMPILE) locks/spack-style.in -o locks/spack-style.txt

licenses: dev ## ask the wheels and recipes of every lock for their licences, after the locks have changed; then make docs
	@ci/spack/setup.sh
	@ci/licenses.sh

YEARS ?= 2000
STEPS ?= 1500
SEEDS ?= 100
bench-statistics: dev ## print the tables of docs/sweep-method.md and docs/history.md, from simulated fleets and nights, in hours (SEEDS=1 YEARS=20 STEPS=20: a small run in minutes)
	@$(BIN)/python -m tests.bench.sweep_fleet $(SEEDS)
	@$(BIN)/python -m tests.bench.sweep_paths $(SEEDS) $(ARGS)
	@$(BIN)/python -m tests.bench.simulate_nights --years $(YEARS) --steps $(STEPS) build/nights
	@$(BIN)/python -m tests.bench.change_points build/nights
	@$(BIN)/python -m tests.bench.drifts build/nights
	@$(BIN)/python -m tests.bench.updates --years $(shell expr $(YEARS) / 100 + 1) --steps $(STEPS)

bench: dev ## measure the run times that have a limit: busbar explain on a log of 1,024 ranks and on other texts, busbar check against its bare jobs (ARGS=)
	@$(BIN)/python -m tests.bench.explain_large
	@$(BIN)/python tests/bench/explain_any.py
	@$(BIN)/python tests/bench/harness_cost.py $(ARGS)

fuzz: dev ## feed a million altered inputs to every parser, in under an hour of one core (COUNT=, ARGS=targets of tests/fuzz/targets.py)
	@$(BIN)/python -m tests.fuzz $(or $(COUNT),1000000) $(ARGS)

mutants: dev ## change the code that judges in 100 ways, one at a time, and list the changes that no test notices (ARGS="--count 300 --seed 1")
	@$(BIN)/python tests/bench/mutants.py $(ARGS)

docs: dev ## write docs/reference/ and docs/pictures/ from the code
	@$(BIN)/python -m ci.docs.reference

# Both need the packages of locks/docs.txt in addition.
docs-site: dev ## write the documentation site to build/site, with search; a dead link is an error
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/docs.txt
	@$(BIN)/python -m ci.docs.website build/site-pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean

completion: dev ## write completion for bash, zsh and fish and a man page to build/shell
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/docs.txt
	@$(BIN)/python -m ci.docs.shell build/shell

clean: ## remove generated files
	rm -rf .venv .spack busbar-report output stage perflogs
