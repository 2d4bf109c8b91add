# Each target does all of its own set-up in .venv. `make help` lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamps
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
CORES  := $(shell getconf _NPROCESSORS_ONLN)
# One more than there are cores: there is always a test that waits for a browser or a cluster.
PYTEST := $(BIN)/python -m pytest -n $(shell expr $(CORES) + 1) --dist worksteal
# The kernels are built for this processor: without AVX-512 where it has none. (`pip install .` builds them for all.)
AMD_FAMILY := $(shell awk '/^vendor_id/ {amd = /AuthenticAMD/} /^cpu family/ {print amd ? $$4 : 0; exit}' /proc/cpuinfo 2>/dev/null)
WIDE   := $(if $(shell test "$(AMD_FAMILY)" -ge 26 2>/dev/null && echo yes),zen5,avx512)
KNOWN  := $(shell grep -som1 flags /proc/cpuinfo)
LEVELS ?= $(if $(KNOWN),$(if $(shell grep -som1 avx512bw /proc/cpuinfo),$(WIDE);)avx2;baseline,avx512;avx2;baseline)
# Who only wants to see it run waits for the quickest of these alone, unless others were asked for or all have been built.
ifeq ($(strip $(filter-out run tour,$(or $(MAKECMDGOALS),help)) $(origin LEVELS) $(KNOWN)),file flags)
ifeq ($(wildcard $(STAMP)/kernels-$(subst ;,-,$(LEVELS))),)
LEVELS := $(firstword $(subst ;, ,$(LEVELS)));baseline
endif
endif
KERNELS := $(STAMP)/kernels-$(subst ;,-,$(LEVELS))
SOURCES := CMakeLists.txt $(wildcard src/poolgrad/cpu/*.cpp src/poolgrad/cpu/*.hpp)
STUDIO := studio/hatch_build.py $(wildcard examples/*) \
	$(shell find studio/web -name node_modules -prune -o -type f -print 2>/dev/null)
PAGES  ?= pages
GPU_PYTHON ?= python3
FILTER ?=
BASE   ?=

# Who has ccache does not compile the same thing twice, in another clone either. CMake reads the first of these.
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(shell command -v ccache)
export CCACHE_BASEDIR ?= $(CURDIR)

.DEFAULT_GOAL := help
.PHONY: help run tour images test test-full test-gpu sanitize emulate lint format bench bench-quick bench-compare clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: ready-studio  ## the studio in the browser, on the example pages; PAGES=... chooses the folder for yours
	@$(BIN)/poolgrad studio $(PAGES)

tour: ready-package  ## the four gradient operators on small data, in the terminal
	@$(BIN)/python examples/tour.py

test: ready-test  ## the test suite, in some minutes
	$(PYTEST)

test-full: ready-test  ## the long sweeps too: huge arrays, and the kernels under sanitizers
	$(PYTEST)
	POOLGRAD_STRICT=1 $(BIN)/python -m pytest -m full -p no:xdist
	POOLGRAD_STRICT=1 $(BIN)/python -m pytest -p no:xdist studio/tests -k two_hundred
	$(MAKE) sanitize

images: ready-test  ## the pictures in docs/images, taken by the browser tests
	POOLGRAD_IMAGES=docs/images $(BIN)/python -m pytest -p no:xdist studio/tests/test_studio_stories.py

# Nothing is built or installed: a machine with a GPU has its own Python with PyTorch, Triton and pytest.
test-gpu:  ## the tests of poolgrad.gpu and poolgrad.torch on a real GPU; GPU_PYTHON=... chooses the Python
	CUDA_VISIBLE_DEVICES=$${CUDA_VISIBLE_DEVICES:-0} PYTHONPATH=src $(GPU_PYTHON) -m pytest -p no:cacheprovider \
		--confcutdir=tests/torch tests/gpu tests/torch

sanitize: ready-test
	tools/sanitize.sh $(BIN)/python

emulate: ready-test  ## the tests of the kernels on those for AVX-512, on a processor that has only AVX2
	tools/emulate.sh $(BIN)/python -n $(CORES)

lint: ready-lint  ## ruff, mypy, biome and tsc, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file studio/pyproject.toml
	npm --prefix studio/web run lint
	$(BIN)/clang-format --dry-run --Werror src/poolgrad/cpu/*.cpp src/poolgrad/cpu/*.hpp src/poolgrad/gpu/*.cu

format: ready-lint  ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i src/poolgrad/cpu/*.cpp src/poolgrad/cpu/*.hpp src/poolgrad/gpu/*.cu

bench: ready-bench  ## every case against every peer; writes docs/benchmarks
	$(BIN)/python -m benchmarks.cpu --filter "$(FILTER)"

bench-quick: ready-bench  ## a part of it in two minutes; FILTER=name chooses
	$(BIN)/python -m benchmarks.cpu --quick --filter "$(FILTER)"

bench-compare: ready-bench  ## this tree against an earlier run: BASE=benchmarks/history/<file>.json
	$(BIN)/python -m benchmarks.cpu --quick --filter "$(FILTER)" --compare $(BASE)

clean:  ## remove everything that was built
	rm -rf $(VENV) build studio/web/node_modules studio/src/poolgrad_studio/static studio/src/poolgrad_studio/examples

# Set-up. Only this runs side by side: while the kernels are compiled, the front end is built and pip unpacks the
# libraries that the target needs. Each pip installs packages that no other one installs.
ready-%:
	@$(MAKE) --silent --jobs 3 LEVELS='$(LEVELS)' $(STAMP)/$*

$(STAMP)/venv: tools/builders.py pyproject.toml studio/pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 10), "poolgrad needs Python 3.10 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade 'pip>=25.1'   # the oldest that knows dependency groups
	$(PIP) 'build>=1.2'
	$(BIN)/python tools/builders.py . studio
	mkdir -p $(STAMP) && touch $@

BUILD := PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) --no-build-isolation --no-deps --editable

$(KERNELS): $(STAMP)/venv $(SOURCES)
	echo "poolgrad: compiling the kernels (some minutes the first time)"
	$(BUILD) . --config-settings 'cmake.define.POOLGRAD_LEVELS=$(LEVELS)'
	rm -f $(STAMP)/kernels*   # those of other sets, which are not installed any more
	touch $@

$(STAMP)/front-end: $(STAMP)/venv $(STUDIO)
	echo "poolgrad-studio: building the front end"
	$(BUILD) ./studio
	touch $@

$(STAMP)/test-group: GROUPS = --group test --group studio/pyproject.toml:test
$(STAMP)/lint-group: GROUPS = --group lint --group studio/pyproject.toml:test
$(STAMP)/bench-group: GROUPS = --group bench
$(STAMP)/%-group: $(STAMP)/venv
	echo "installing what 'make $*' needs"
	$(PIP) --no-warn-conflicts $(GROUPS)   # our packages, installed meanwhile, still miss what comes below
	touch $@

# Our packages are there by now: pip adds what they need themselves, and for the extras that are named.
$(STAMP)/package: $(KERNELS)
	$(PIP) poolgrad
	touch $@

$(STAMP)/studio: $(KERNELS) $(STAMP)/front-end
	$(PIP) 'poolgrad[cli,files]' poolgrad-studio
	touch $@

$(STAMP)/test: $(KERNELS) $(STAMP)/front-end $(STAMP)/test-group
	$(PIP) 'poolgrad[cli,files,volumes]' poolgrad-studio
	touch $@

$(STAMP)/lint: $(KERNELS) $(STAMP)/front-end $(STAMP)/lint-group
	$(PIP) 'poolgrad[cli,files]' poolgrad-studio
	touch $@

$(STAMP)/bench: $(KERNELS) $(STAMP)/bench-group
	$(PIP) 'poolgrad[volumes]'
	touch $@
