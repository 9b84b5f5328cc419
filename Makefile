# SPDX-License-Identifier: MIT
# The commands of the project; `make help` lists them.
SHELL := /bin/bash
BIN := .venv/bin

.PHONY: help setup check test lint lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## make .venv from the lock (LANE=ucx-current adds the second lane)
	@ci/setup.sh

check: setup ## run the checks on this machine, print verdicts, write a report (ARGS=... for busbar check)
	@$(BIN)/busbar check $(if $(LANE),--lane $(LANE)) $(ARGS)

test: setup lint ## run the test suite (ARGS=... for pytest)
	@$(BIN)/pytest $(ARGS)

lint: setup ## format and lint checks, types, shell scripts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@git ls-files -z '*.sh' .ci/run | xargs -0 $(BIN)/shellcheck

# uv is only needed here; it writes the locks for every supported Python at once.
UV_COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet
lock: ## resolve the requirements again and write the locks (needs uv)
	$(UV_COMPILE) --extra wheels --extra dev pyproject.toml -o requirements.lock
	$(UV_COMPILE) locks/ucx-current.in -o locks/ucx-current.txt

clean: ## remove what the targets made
	rm -rf .venv busbar-report output stage perflogs
