# SPDX-License-Identifier: Apache-2.0
# `make setup` makes .venv from nothing; every other target sets up first and is quick when nothing changed.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
INTEGRATIONS := $(VENV)/opt/integrations
BIN := $(VENV)/bin
JOBS ?= $(shell nproc)
# The first Python that is new enough; `make PYTHON=/path/to/python` overrides it.
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
  $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
# Pinned and installed before anything else asks for torch: another build may be gigabytes.
TORCH ?= torch==2.13.0
# Tests side by side: half of their time they wait.
WORKERS ?= $(shell echo $$((2 * $(JOBS))))
ARGS ?=
# Tests with ranks for `make quick`: collectives, arrays, DistributedDataParallel, deaths, the service, strategies.
QUICK := test_collectives.py::test_odd_sizes_of_group test_communicator.py::test_against_numpy \
  test_ddp.py::test_training_on_three_ranks test_death.py::test_death_inside_all_reduce test_fsdp.py::test_hsdp \
  test_parameters.py::test_others_go_on_when_a_member_is_killed test_gossip.py::test_resume \
  test_elastic_average.py::test_rounds test_local_steps.py::test_no_step_is_lost test_buffers_in_range.py
# Of `make check`: all of it, or part K of N: PART=2/3.
PART ?=
IN_PART = $(if $(PART),--part $(PART))
# So many tests may come too late once, and pass when they run again, alone.
FLAKY ?= 3

export PATH := $(CURDIR)/$(BIN):$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some containers forbid it: then each process of each rank would compile the tests anew.
unexport PYTHONDONTWRITEBYTECODE
# Builds use ccache where it is installed. It takes precompiled headers only when told to.
ifneq ($(shell command -v ccache),)
export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
endif
# Here the package is built, and the C++ tests against the same objects.
PACKAGE := build/package

SOURCES := pyproject.toml CMakeLists.txt $(shell find cmake csrc python \
  -type f -not -name '*.pyc' -not -path '*/__pycache__*')
CXX_FILES = $(shell find csrc tests/cpp tests/simulator tests/fuzz -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh')

.PHONY: help setup adapter test check quick cpp-test cpp-test-and-builds compiled-pytest pytest pytest-changed pytest-long timing integrations lint types stubs format demo bench asan tsan fuzz \
  conformance conformance-update clean distclean

help:
	@echo 'make setup | quick | test | check | cpp-test | pytest | pytest-changed | pytest-long | timing | lint | types | stubs | format'
	@echo '     demo | integrations | bench | asan | tsan | fuzz | conformance | conformance-update | clean | distclean'
	@echo 'test: everything but what is long, eleven to fourteen minutes; check: sanitizers, fuzzers and the long tests'

setup: $(VENV)/.set-up
adapter: $(VENV)/.adapter

# $(call stage,WHAT,HOW LONG): says what is done now, and how long that takes on two quiet cores.
stage = @echo "=== $$(date +%T) $(1); about $(2)"

# torch is fetched while braid is built: the build must not need torch.
$(VENV)/.set-up: $(VENV)/.build-tools $(SOURCES)
	@$(MAKE) --no-print-directory -j2 $(VENV)/.tools $(VENV)/.installed
	@touch $@

# The venv, with tools that build; made again when pyproject.toml changes.
$(VENV)/.build-tools: pyproject.toml
	@test -n "$(PYTHON)" || { echo 'braid needs Python 3.11 or newer (make PYTHON=/path/to/it setup)' >&2; exit 1; }
	@echo "=== $$(date +%T) making .venv; some minutes, once; needs a network"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet cmake ninja scikit-build-core pybind11
	@touch $@

$(VENV)/.tools: $(VENV)/.build-tools
	@echo "=== $$(date +%T) fetching torch and all tools for .venv"
	@$(BIN)/pip install --quiet '$(TORCH)'
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], \
	  *tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"], sep="\n")' \
	  > $(VENV)/requirements.txt
	@$(BIN)/pip install --quiet '$(TORCH)' -r $(VENV)/requirements.txt
	@touch $@

# The package itself, built in isolation: the build must not need anything of this venv. But pybind11 is that of the
# venv: what is built later in the same folder still finds it. The tests are configured, and built by cpp-test.
$(VENV)/.installed: $(VENV)/.build-tools $(SOURCES)
	@mkdir -p build
	@echo "=== $$(date +%T) building braid; two to ten minutes, once, and again where C++ changes; output in build/setup.log"
	@gtest=$$(tools/get_gtest.sh $(VENV)/opt 2> /dev/null) && tests=ON || tests=OFF; \
	$(BIN)/python tools/with_progress.py 'building braid' build/setup.log \
	  $(BIN)/pip install --verbose --no-deps . -C build-dir=$(PACKAGE) -C cmake.define.BRAID_WITH_TESTS=$$tests \
	  -C cmake.define.GTest_ROOT="$$gtest" -C cmake.define.pybind11_DIR="$$($(BIN)/pybind11-config --cmakedir)"
	@touch $@

# Compiled here, so that no test waits for it; half a minute of two cores, and at once if the cache has it.
$(VENV)/.adapter: $(VENV)/.set-up
	$(BIN)/braid build
	@touch $@

# For tests/device: the simulated device.
$(VENV)/.device: $(VENV)/.adapter tests/device/simulated.py $(wildcard tests/simulator/core/* tests/simulator/torch_device/*)
	PYTHONPATH=tests/device $(BIN)/python -c 'import simulated; simulated.build()'
	@touch $@

# For its long tests: an adapter with faults that they must catch.
$(VENV)/.faults: $(VENV)/.device
	CXX="$${CXX:-g++} -DBRAID_TEST_MUTATIONS" $(BIN)/braid build
	@touch $@

# What a change needs, in eleven to fourteen minutes. Goes on after a failure; pytest's summary comes last.
test: setup
	@$(MAKE) --no-print-directory --keep-going -j1 lint types cpp-test-and-builds pytest

# C++ tests leave room: meanwhile the Python tests and their extensions are compiled.
cpp-test-and-builds:
	@$(MAKE) --no-print-directory --keep-going -j2 cpp-test compiled-pytest

# Once for all workers of pytest.
compiled-pytest: $(VENV)/.device
	@$(BIN)/python -m pytest --collect-only -qq > build/collected.log || { tail build/collected.log; exit 1; }

# What takes longer: the C++ tests again under sanitizers, every fuzzer for a minute, and the long Python tests, which
# `make test` leaves out. PART=2/3 runs a part, and the sanitizers on what the last commits changed.
check: setup
	@$(MAKE) --no-print-directory --keep-going -j1 asan tsan fuzz pytest-long

# For the loop of editing: what one process can tell, and some tests with ranks of each kind; two minutes after a build.
quick: adapter
	@$(MAKE) --no-print-directory --keep-going -j1 lint types
	$(BIN)/python -m pytest -q -n $(WORKERS) -m 'unit and not slow and not long' $(ARGS)
	$(BIN)/python -m pytest -q -n $(WORKERS) -m 'not slow and not long' $(addprefix tests/multiprocess/,$(QUICK)) $(ARGS)

# ARGS="-m long -k lab" and the like run long ones as well: the last -m counts.
pytest: adapter $(VENV)/.device
	$(call stage,Python tests,six minutes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --flaky-most $(FLAKY) -m 'not long' $(ARGS)

# What the last commits add or edit, four times more, without a second try: a new test that is flaky fails here. New long
# tests run twice: of those that are edited, each run of `make check` has a part.
pytest-changed: adapter $(VENV)/.device
	@tests=$$($(BIN)/python tests/changed.py); test -n "$$tests" || exit 0; \
	echo 'four times more:' $$tests; \
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --count 4 -m 'not long' $$tests || test $$? -eq 5
	@tests=$$($(BIN)/python tests/changed.py --added); test -n "$$tests" || exit 0; \
	echo 'twice, if long:' $$tests; \
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --count 2 -m long $$tests || test $$? -eq 5

# How fast things are; on a quiet machine, one test after another. It gates nothing.
timing: adapter
	$(call stage,tests of speed,four minutes)
	BRAID_TEST_TIMING=1 $(BIN)/python -m pytest -m timing $(ARGS)

pytest-long: adapter $(VENV)/.faults
	$(call stage,long Python tests,$(if $(PART),five,fourteen) minutes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --flaky-most $(FLAKY) $(IN_PART) -m long $(ARGS)

# $(call ctest,CONFIGURE,FOLDER,OPTIONS): configures, builds and runs the C++ tests of one build folder.
define ctest
@if ! prefix=$$(tools/get_gtest.sh $(VENV)/opt); then \
  echo '*** THE C++ TESTS WERE SKIPPED: there is no GoogleTest, see above ***' >&2; \
  test "$${CI:-}" != true; exit; \
fi; \
cmake $(1) -DBRAID_WITH_TESTS=ON "-DGTest_ROOT=$$prefix" > /dev/null; \
$(BIN)/python tests/cpp/run.py $(2) --jobs $(WORKERS) $(3)
endef

cpp-test: setup
	$(call stage,C++ tests,three minutes)
	$(call ctest,$(PACKAGE),$(PACKAGE))

asan: setup
	$(call stage,C++ tests under AddressSanitizer,$(if $(PART),five,ten) minutes)
	$(call ctest,--preset asan,build/asan,$(IN_PART))

# Newer kernels place memory where ThreadSanitizer does not expect it, unless told not to. Some containers forbid to.
tsan: setup
	$(call stage,C++ tests under ThreadSanitizer,$(if $(PART),seven,eighteen) minutes)
	$(call ctest,--preset tsan,build/tsan,$(IN_PART) $(shell setarch -R true 2> /dev/null && echo --wrapper '"setarch -R"'))

# Every fuzzer for a minute; ARGS="mailbox --seconds 600" and the like for others. tests/fuzz/README.md has more.
fuzz: setup
	$(call stage,fuzzers,$(if $(PART),three,nine) minutes)
	$(BIN)/python tests/fuzz/run.py $(IN_PART) $(ARGS)

# Frameworks as they are, in a venv of their own that also sees all of .venv.
$(INTEGRATIONS)/.installed: $(VENV)/.tools
	$(BIN)/python -m venv $(INTEGRATIONS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > $$($(INTEGRATIONS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/of_braid.pth
	$(INTEGRATIONS)/bin/pip install --quiet '$(TORCH)' accelerate lightning pytorch-ignite transformers torchft-nightly \
	  'ray[train]' deepspeed mmengine trl
	@touch $@

integrations: adapter $(INTEGRATIONS)/.installed
	$(call stage,scripts of frameworks,some minutes)
	PATH=$(CURDIR)/$(INTEGRATIONS)/bin:$$PATH $(INTEGRATIONS)/bin/python -m pytest -n $(JOBS) -m 'long or not long' \
	  tests/multiprocess/test_frameworks.py tests/multiprocess/test_torchft.py $(ARGS)

lint: setup
	$(call stage,lint,10 s)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)  # not printed: it has a thousand names
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/check_sizes.py
	$(BIN)/python tools/check_docs.py
	$(BIN)/python tools/check_words.py
	$(BIN)/python tools/check_sleeps.py
	$(BIN)/python tools/check_dtypes.py

types: setup
	$(call stage,types,10 s)
	$(BIN)/python tools/make_stubs.py --check
	$(BIN)/mypy

# Writes python/braid/_core.pyi anew, after a change of what csrc/python binds.
stubs: setup
	$(BIN)/python tools/make_stubs.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

demo: adapter
	$(BIN)/python examples/run_demo.py $(ARGS)

# Collectives on this machine, beside Gloo and whatever MPI can be had; a quarter of an hour. Writes into bench/intra_host.
bench: adapter
	tools/get_mpi.sh $(BIN)/python mpich $(VENV)/opt/mpich || echo '*** MPICH is left out: see above ***' >&2
	tools/get_mpi.sh $(BIN)/python intelmpi $(VENV)/opt/intelmpi || echo '*** Intel MPI is left out: see above ***' >&2
	$(BIN)/python bench/intra_host/run.py --mpi mpich=$(VENV)/opt/mpich --mpi intelmpi=$(VENV)/opt/intelmpi $(ARGS)

# PyTorch's own tests of a backend, on Gloo and on braid, against the lists in tests/conformance/expected.
conformance: adapter
	$(BIN)/python tests/conformance/run_suite.py check $(ARGS)

# Writes the lists and docs/conformance.md anew; reasons for failures are in tests/conformance/known_failures.toml.
conformance-update: adapter
	@status=0; \
	$(BIN)/python tests/conformance/run_suite.py update $(ARGS) || status=$$?; \
	$(BIN)/python tests/conformance/page.py; \
	exit $$status

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
