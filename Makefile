# make demo           environment, two real trainings, their reports
# make test           environment, test suite       (PYTEST_ARGS="-m 'not slow'" and the like)
# make lint           ruff check, ruff format --check
# make format         let ruff mend what it can
# make types          mypy, strict over the package and the examples
# make wheel-test     tests of schema, commands and tracer against the built wheel
# make clean          remove environments, builds and caches
#
# PYTHON=...          the interpreter; if it already has torch, that torch is used and nothing is installed into it
# TORCH_INDEX=...     a further index to take torch from, such as PyTorch's own for its small CPU builds

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test lint format types links wheel wheel-test clean

TORCH_INDEX ?=
PYTEST_ARGS ?=
# what a wheel can lack is code and data of packages: these tests reach all of them
WHEEL_TESTS ?= tests/schema tests/cli tests/tracer

# A PYTHON that was asked for gets an environment of its own, so that going to and fro rebuilds nothing.
ifneq ($(filter command environment,$(firstword $(origin PYTHON))),)
VENV := .venv-given
else
VENV := .venv
endif
PYTHON ?= python3
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
INSTALL = $(PIP) install -c $(VENV)/constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

# The stamps: created (its name holds the interpreter: another one makes the environment anew), demo, dev.
CREATED := $(VENV)/.created$(subst /,-,$(PYTHON))
DEMO := $(VENV)/.demo
DEV := $(VENV)/.dev

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

$(CREATED):
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/constraints.txt: constraints.txt .ci/overlay.py $(CREATED)
ifeq ($(VENV),.venv)
	@cp constraints.txt $@
else
	@$(PYTHON) .ci/overlay.py $(VENV)
endif

$(DEMO): $(VENV)/constraints.txt pyproject.toml
	$(INSTALL) -e '.[torch]'
	@touch $@

$(DEV): $(DEMO)
	$(INSTALL) -e '.[torch,dev]'
ifneq ($(VENV),.venv)
	@# commands of borrowed packages lie elsewhere
	$(INSTALL) --force-reinstall --no-deps build mypy pytest ruff
endif
	@touch $@

demo: $(DEMO)
	examples/demo.sh $(BIN)

# `pytest`, not `python -m pytest`: the checkout on sys.path would make bare `schema` and `cli` importable.
test: $(DEV)
	$(BIN)/pytest $(PYTEST_ARGS)

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(DEV)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Type checkers do not follow the import hook of an editable install: they follow these links.
links:
	@rm -rf build/types && mkdir -p build/types/rankscope
	@for folder in tracer hooks analyzers schema cli; do ln -s ../../../$$folder build/types/rankscope/$$folder; done
	@for file in tracer/root/*.* ; do ln -s ../../../$$file build/types/rankscope/; done

types: $(DEV) links
	$(BIN)/mypy -p rankscope
	$(BIN)/mypy examples tests $(wildcard benchmarks)

# setuptools reuses build/lib, and would ship files that are gone.
wheel: $(DEV)
	@rm -rf build/lib build/bdist.* build/wheel && mkdir -p build
	$(BIN)/pyproject-build --wheel --outdir build/wheel > build/wheel.log 2>&1 || { cat build/wheel.log; exit 1; }

# The wheel is in an environment of its own; the rest, torch above all, is seen where it lies. Path files of the other
# environment are not read there, so its editable install stays out of sight.
wheel-test: wheel
	@rm -rf build/wheel-venv build/outside && mkdir -p build/outside
	@$(BIN)/python -m venv build/wheel-venv
	@build/wheel-venv/bin/python -m pip --quiet --disable-pip-version-check install --no-deps build/wheel/*.whl
	@# Python 3.11 and older bring a setuptools that is too old for torch
	@build/wheel-venv/bin/python -m pip --quiet --disable-pip-version-check uninstall --yes setuptools 2> /dev/null
	@$(BIN)/python -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
		> $$(echo build/wheel-venv/lib/python*/site-packages)/zz_rest.pth
ifeq ($(VENV),.venv)
	@build/wheel-venv/bin/python -m pip --disable-pip-version-check check
endif
	cd build/outside && ../wheel-venv/bin/python -m pytest -m "not slow and not system" $(addprefix $(CURDIR)/,$(WHEEL_TESTS))

clean:
	rm -rf .venv .venv-given build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
