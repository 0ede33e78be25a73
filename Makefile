# Everything a contributor does with Backstay. Each target first makes the environment it needs.
#
#   make test TESTS=tests/test_package.py ARGS="-x -k wheel"
#   make check PYTHON=python3.12

PYTHON ?= python3
UV_VERSION := 0.13.7

TESTS ?=
ARGS ?=
BACKSTAY_CRASH_ROUNDS ?= 200
# Each process that runs tests has servers of its own. One test, or one file, does not wait for a second process.
SIDE_BY_SIDE = -n $(if $(TESTS),0,auto) --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve test check check-format check-lint check-types check-layers bench crash lowest reference lock vendor \
	pictures clean chromium

help: ## show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  TESTS="paths" and ARGS="options" are handed on: make test TESTS=tests/test_package.py ARGS=-x'
	@echo '  PYTHON=python3.12 chooses the interpreter of a new environment (3.11 or newer).'

serve: .venv/.installed ## serve sessions on this machine, and show the page
	.venv/bin/backstay serve $(ARGS)

test: .venv/.installed chromium ## run every test, on every processor (ARGS="-n 0": one after the other)
	.venv/bin/python -m pytest $(SIDE_BY_SIDE) $(TESTS) $(ARGS)

# The page is tested in a browser. Where there is none and it cannot be had, those tests say that they are skipped.
FETCH_CHROMIUM = apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium >/dev/null
chromium:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	if [ `id -u` = 0 ] && command -v apt-get >/dev/null && timeout 600 sh -c '$(FETCH_CHROMIUM)'; then exit 0; fi; \
	echo 'There is no Chromium: the tests of the page will be skipped (Debian, Ubuntu: apt install chromium).' >&2

check: check-format check-lint check-types check-layers ## formatting, lint, types, layers (make -k check: all four)

check-format: .venv/.installed
	.venv/bin/ruff format --check

check-lint: .venv/.installed
	.venv/bin/ruff check

check-types: .venv/.installed
	.venv/bin/mypy

check-layers: .venv/.installed
	.venv/bin/lint-imports --no-logo

bench: .venv/.installed ## measure against raw SQLite and PostgreSQL, printed as ratios
	.venv/bin/python -m benchmarks $(ARGS)

crash: .venv/.installed ## kill writers many more times than `make test` does (BACKSTAY_CRASH_ROUNDS=200)
	BACKSTAY_CRASH_ROUNDS=$(BACKSTAY_CRASH_ROUNDS) .venv/bin/python -m pytest tests/crash tests/runtime_processes tests/postgres $(ARGS)

lowest: .venv-lowest/.installed ## run every test with the oldest dependencies we promise
	.venv-lowest/bin/python -m pytest $(SIDE_BY_SIDE) $(TESTS) $(ARGS)

reference: .venv/.installed ## write docs/reference from what the program declares
	.venv/bin/python -m reference

lock: .venv-lock/.uv-$(UV_VERSION) ## write requirements/*.lock from pyproject.toml (ARGS=--upgrade raises every pin)
	$(COMPILE) --group dev --extra acp --extra postgres $(ARGS) --output-file requirements/dev.lock
	$(COMPILE) --constraints requirements/dev.lock $(ARGS) --output-file requirements/runtime.lock
	$(COMPILE) --group build --group test --extra acp --extra postgres --resolution lowest-direct --upgrade --output-file requirements/lowest.lock

vendor: ## bundle the page's libraries anew, from the versions in vendor/package-lock.json (needs npm)
	cd vendor && npm ci --ignore-scripts --no-audit --no-fund && node bundle.js

pictures: .venv/.installed chromium ## take the pictures of the page in docs/pictures anew
	.venv/bin/python -m tests.page.pictures

clean: ## remove environments, caches and built packages
	rm -rf .venv .venv-lowest .venv-lock .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache dist vendor/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

COMPILE = .venv-lock/bin/uv --no-config pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

# An environment is made in two steps: the pinned packages, afresh whenever their lock changes, so nothing unpinned
# lingers; then Backstay itself, as a link to src/, whenever pyproject.toml changes.

.venv/.packages: requirements/dev.lock
	$(make-environment)

.venv-lowest/.packages: requirements/lowest.lock
	$(make-environment)

.venv/.installed .venv-lowest/.installed: %/.installed: %/.packages pyproject.toml
	@$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.venv-lock/.uv-$(UV_VERSION):
	@$(suitable-python)
	@$(PYTHON) -m venv --clear .venv-lock
	@.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

define make-environment
	@$(suitable-python)
	@echo "Making $(@D) from $<; this happens once."
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
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

# A checkout that was moved, or whose interpreter is gone, has an environment that looks whole and is not: make it anew.
broken = $(if $(filter-out $(shell $(1)/bin/python -ISc 'print(open("$(1)/.packages").read())' 2>/dev/null),$(CURDIR)),$(1)/.packages)
.PHONY: $(call broken,.venv) $(call broken,.venv-lowest)
