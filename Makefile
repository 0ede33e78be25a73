# The commands of a contributor. Each target first makes the environment that it needs.
#
#   make test TESTS=tests/test_package.py ARGS="-x -k wheel"
#   make check PYTHON=python3.12

PYTHON ?= python3
UV_VERSION := 0.13.7

TESTS ?=
ARGS ?=
BACKSTAY_CRASH_ROUNDS ?= 200
# Each process that runs tests starts its own servers. One test, or one file, does not need a second process.
SIDE_BY_SIDE = -n $(if $(TESTS),0,auto) --maxprocesses 8 --dist worksteal

# Tests start many interpreters: each reads what an earlier one has compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve test check check-format check-lint check-types check-layers check-names bench bench-peers crash clients lowest reference lock vendor \
	pictures clean chromium

help: ## show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  TESTS="paths" and ARGS="options" are passed on: make test TESTS=tests/test_package.py ARGS=-x'
	@echo '  PYTHON=python3.12 chooses the interpreter of a new environment (3.11 or newer).'

serve: .venv-serve/.installed ## start the server and open the web UI (needs no development tools)
	.venv-serve/bin/backstay serve $(ARGS)

test: .venv/.installed chromium ## run every test, on every processor (ARGS="-n 0": one after the other)
	.venv/bin/python -m pytest $(SIDE_BY_SIDE) $(TESTS) $(ARGS)

# The web UI is tested in a browser. Without one, and where it cannot be installed, those tests are reported as skipped.
FETCH_CHROMIUM = apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium >/dev/null
chromium:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	if [ `id -u` = 0 ] && command -v apt-get >/dev/null && timeout 600 sh -c '$(FETCH_CHROMIUM)'; then exit 0; fi; \
	echo 'Chromium is not installed: the tests of the web UI will be skipped (Debian, Ubuntu: apt install chromium).' >&2

check: check-format check-lint check-types check-layers check-names ## formatting, lint, types, layers, names (make -k check: all)

check-format: .venv/.installed
	.venv/bin/ruff format --check

check-lint: .venv/.installed
	.venv/bin/ruff check

check-types: .venv/.installed
	.venv/bin/mypy

check-layers: .venv/.installed
	.venv/bin/lint-imports --no-logo

check-names: .venv/.installed
	.venv/bin/python -m checks.names

bench: .venv/.installed ## measure against raw SQLite and PostgreSQL, printed as ratios
	.venv/bin/python -m benchmarks $(ARGS)

# Each peer has an environment of its own under .venv-peers, made once from benchmarks/peers/requirements.
bench-peers: .venv/.installed ## measure beside other session stores; writes docs/benchmarks.md (ARGS=--short: five minutes)
	.venv/bin/python -m benchmarks.peers $(ARGS)

# Where `make test` tries a sample: every step of a sweep, many more kills and examples, every engine.
SWEEPS = tests/cli/test_organise_commands.py tests/cli/test_send_command.py tests/crash tests/gateways/test_killed_gateway.py \
	tests/move/test_killed_move.py tests/postgres tests/runtime/app/test_close.py tests/runtime/app/test_owner_scope.py \
	tests/runtime/events/test_follow.py tests/runtime/schedules/test_due_schedules.py tests/runtime/tools/test_ledger.py \
	tests/runtime/turns/test_busy_session.py tests/runtime/turns/test_cancel.py tests/runtime/turns/test_load.py \
	tests/runtime/turns/test_random_actions.py tests/runtime/turns/test_send.py tests/runtime_processes \
	tests/server/http/test_openapi.py tests/server/openai/test_openai_fuzz.py tests/server/process/test_many_clients.py \
	tests/server/process/test_shutdown.py tests/server/routes/test_stream.py tests/server/test_approval_after_kill.py tests/store/documents/test_edited_documents.py \
	tests/store/documents/test_killed_import.py tests/store/search tests/store/test_postgres_contract.py \
	tests/store/test_races.py tests/store/test_state_machine.py tests/web/test_accessibility.py \
	tests/web/failures/test_failures.py::test_a_tab_reloaded_at_any_moment_of_an_answer_shows_the_same

crash: .venv/.installed chromium ## kill writers many more times than `make test` does (BACKSTAY_CRASH_ROUNDS=200)
	BACKSTAY_CRASH_ROUNDS=$(BACKSTAY_CRASH_ROUNDS) .venv/bin/python -m pytest $(SWEEPS) $(ARGS)

# Clients of other makers, in environments of their own, made once from their locks.
clients: .venv/.installed .venv-clients/.packages tests/clients/node/node_modules/.package-lock.json ## test with the unmodified clients of OpenAI's API and with generated ones (needs npm)
	BACKSTAY_CLIENTS=1 .venv/bin/python -m pytest -n 0 tests/clients $(ARGS)

tests/clients/node/node_modules/.package-lock.json: tests/clients/node/package-lock.json
	cd tests/clients/node && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

lowest: .venv-lowest/.installed ## run every test with the oldest supported dependencies
	.venv-lowest/bin/python -m pytest $(SIDE_BY_SIDE) $(TESTS) $(ARGS)

reference: .venv/.installed ## write docs/reference from declarations in the code
	.venv/bin/python -m reference

lock: .venv-lock/.uv-$(UV_VERSION) ## write requirements/*.lock from pyproject.toml (ARGS=--upgrade raises every pin)
	$(COMPILE) pyproject.toml --group dev --extra acp --extra mcp --extra postgres --extra push --extra telegram $(ARGS) --output-file requirements/dev.lock
	$(COMPILE) pyproject.toml --constraints requirements/dev.lock $(ARGS) --output-file requirements/runtime.lock
	$(COMPILE) --group pyproject.toml:build --constraints requirements/dev.lock $(ARGS) --output-file requirements/build.lock
	$(COMPILE) pyproject.toml --group build --group test --extra acp --extra mcp --extra postgres --extra push --extra telegram --resolution lowest-direct --upgrade --output-file requirements/lowest.lock
	$(COMPILE) tests/clients/python/requirements.in $(ARGS) --output-file tests/clients/python/requirements.lock

vendor: ## bundle the libraries of the web UI again, from the versions in vendor/package-lock.json (needs npm)
	cd vendor && npm ci --ignore-scripts --no-audit --no-fund && node bundle.js

pictures: .venv/.installed chromium ## take the pictures of the web UI in docs/pictures again
	.venv/bin/python -m tests.web.pictures

clean: ## remove environments, caches and built packages
	rm -rf .venv .venv-serve .venv-lowest .venv-lock .venv-peers .venv-clients .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache dist vendor/node_modules tests/clients/node/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

COMPILE = .venv-lock/bin/uv --no-config pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

# An environment is made in two steps: the pinned packages, from scratch whenever a lock changes, so that no unpinned
# package stays; then Backstay itself, as a link to src/, whenever pyproject.toml changes.

.venv/.packages: requirements/dev.lock
	$(make-environment)

# The small environment of `make serve`: what an installed Backstay needs, and the tool that links src/ into it.
.venv-serve/.packages: requirements/runtime.lock requirements/build.lock
	$(make-environment)

.venv-clients/.packages: tests/clients/python/requirements.lock
	$(make-environment)

.venv-lowest/.packages: requirements/lowest.lock
	$(make-environment)

.venv/.installed .venv-serve/.installed .venv-lowest/.installed: %/.installed: %/.packages pyproject.toml
	@$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.venv-lock/.uv-$(UV_VERSION):
	@$(suitable-python)
	@$(PYTHON) -m venv --clear .venv-lock
	@.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

define make-environment
	@$(suitable-python)
	@echo "Making $(@D) from $^; this happens once."
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --disable-pip-version-check --no-compile --require-hashes $(^:%=--requirement %)
	@echo '$(CURDIR)' > $@
endef

define suitable-python
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		found=`$(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null`; \
		echo "Backstay needs Python 3.11 or newer; '$(PYTHON)' is $${found:-not a Python}." >&2; \
		echo "Install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python)" >&2; \
		echo "or name one you have: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make a virtual environment: its venv module is not installed." >&2; \
		echo "Install it (Debian, Ubuntu: apt install python3-venv)" >&2; \
		echo "or name another Python: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
endef

# After a move of the checkout, or without its interpreter, an environment looks complete but does not work: make it again.
broken = $(if $(filter-out $(shell $(1)/bin/python -ISc 'print(open("$(1)/.packages").read())' 2>/dev/null),$(CURDIR)),$(1)/.packages)
.PHONY: $(foreach environment,.venv .venv-serve .venv-lowest .venv-clients,$(call broken,$(environment)))
