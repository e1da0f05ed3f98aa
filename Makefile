# SPDX-License-Identifier: Apache-2.0
# `make setup` makes .venv from nothing; every other target sets up first and is quick when nothing changed.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc)
# The first Python that is new enough; `make PYTHON=/path/to/python` overrides it.
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
  $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
# Pinned and installed before anything else asks for torch: another build may be gigabytes.
TORCH ?= torch==2.13.0
# Tests side by side. Most of them wait, or start Python.
WORKERS ?= 2
ARGS ?=

export PATH := $(CURDIR)/$(BIN):$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Builds use ccache where it is installed.
ifneq ($(shell command -v ccache),)
export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
endif

SOURCES := pyproject.toml CMakeLists.txt $(shell find cmake csrc python \
  -type f -not -name '*.pyc' -not -path '*/__pycache__*')
CXX_FILES = $(shell find csrc tests/cpp tests/fuzz -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh')

.PHONY: help setup test check quick cpp-test pytest lint types stubs format demo bench asan tsan fuzz conformance \
  conformance-update clean distclean

help:
	@echo 'make setup | quick | test | check | cpp-test | pytest | lint | types | stubs | format | demo | bench'
	@echo '     asan | tsan | fuzz | conformance | conformance-update | clean | distclean'

setup: $(VENV)/.installed

# The venv with torch and all tools; made again when pyproject.toml changes.
$(VENV)/.tools: pyproject.toml
	@test -n "$(PYTHON)" || { echo 'braid needs Python 3.11 or newer (make PYTHON=/path/to/it setup)' >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet '$(TORCH)'
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], \
	  *tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"], sep="\n")' \
	  > $(VENV)/requirements.txt
	$(BIN)/pip install --quiet '$(TORCH)' -r $(VENV)/requirements.txt cmake ninja scikit-build-core pybind11
	@touch $@

# The package itself, built in isolation: the build must not need torch, nor anything else of this venv.
$(VENV)/.installed: $(VENV)/.tools $(SOURCES)
	$(BIN)/pip install --quiet --no-deps .
	@touch $@

# Every test once. Goes on after a failure; pytest's summary comes last.
test: setup
	@$(MAKE) --no-print-directory --keep-going -j1 lint types cpp-test pytest

# What finds more and takes longer: the C++ tests again under sanitizers, and every fuzzer for a minute.
check: setup
	@$(MAKE) --no-print-directory --keep-going -j1 asan tsan fuzz

# For the loop of editing: what one process can tell, in about a minute after a build.
quick: setup
	@$(MAKE) --no-print-directory --keep-going -j1 lint types
	$(BIN)/python -m pytest -q -m 'unit and not slow' $(ARGS)

pytest: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# $(call ctest,PRESET,WRAPPER): configures, builds and runs the C++ tests of one preset.
define ctest
@if ! prefix=$$(tools/get_gtest.sh $(VENV)/opt); then \
  echo '*** THE C++ TESTS WERE SKIPPED: there is no GoogleTest, see above ***' >&2; \
  test "$${CI:-}" != true; exit; \
fi; \
cmake --preset $(1) $${prefix:+-DCMAKE_PREFIX_PATH=$$prefix} > /dev/null; \
cmake --build build/$(1); \
GTEST_BRIEF=1 $(2) ctest --test-dir build/$(1) --output-on-failure --no-tests=ignore -j $(JOBS)
endef

cpp-test: setup
	$(call ctest,core-only,)

asan: setup
	$(call ctest,asan,)

# Newer kernels place memory where ThreadSanitizer does not expect it, unless told not to. Some containers forbid to.
tsan: setup
	$(call ctest,tsan,$(shell setarch -R true 2> /dev/null && echo setarch -R))

# Every fuzzer for a minute; ARGS="mailbox --seconds 600" and the like for others. tests/fuzz/README.md has more.
fuzz: setup
	$(BIN)/python tests/fuzz/run.py $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/check_sizes.py
	$(BIN)/python tools/check_docs.py

types: setup
	$(BIN)/python tools/make_stubs.py --check
	$(BIN)/mypy

# Writes python/braid/_core.pyi anew, after a change of what csrc/python binds.
stubs: setup
	$(BIN)/python tools/make_stubs.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

demo: setup
	$(BIN)/python examples/run_demo.py $(ARGS)

# Collectives on this machine, beside Gloo and whatever MPI can be had; a quarter of an hour. Writes into bench/intra_host.
bench: setup
	tools/get_mpi.sh $(BIN)/python mpich $(VENV)/opt/mpich || echo '*** MPICH is left out: see above ***' >&2
	tools/get_mpi.sh $(BIN)/python intelmpi $(VENV)/opt/intelmpi || echo '*** Intel MPI is left out: see above ***' >&2
	$(BIN)/python bench/intra_host/run.py --mpi mpich=$(VENV)/opt/mpich --mpi intelmpi=$(VENV)/opt/intelmpi $(ARGS)

# PyTorch's own tests of a backend, on Gloo and on braid, against the lists in tests/conformance/expected.
conformance: setup
	$(BIN)/python tests/conformance/run_suite.py check $(ARGS)

# Writes the lists and docs/conformance.md anew; reasons for failures are in tests/conformance/known_failures.toml.
conformance-update: setup
	@status=0; \
	$(BIN)/python tests/conformance/run_suite.py update $(ARGS) || status=$$?; \
	$(BIN)/python tests/conformance/page.py; \
	exit $$status

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
