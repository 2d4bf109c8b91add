# Each target does all of its own set-up in .venv. `make help` lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamps
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CORES  := $(shell getconf _NPROCESSORS_ONLN)
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/poolgrad/cpu/*.cpp src/poolgrad/cpu/*.hpp)
STUDIO := studio/pyproject.toml studio/hatch_build.py \
	$(shell find studio/web -name node_modules -prune -o -type f -print 2>/dev/null)
PAGES  ?= pages
GPU_PYTHON ?= python3
FILTER ?=
BASE   ?=

.DEFAULT_GOAL := help
.PHONY: help run tour images test test-full test-gpu sanitize lint format bench bench-quick bench-compare clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: $(STAMP)/studio  ## the studio in the browser, on the example pages; PAGES=... chooses the folder for yours
	@$(BIN)/poolgrad studio $(PAGES)

tour: $(STAMP)/package  ## the four gradient operators on small data, in the terminal
	@$(BIN)/python examples/tour.py

test: $(STAMP)/test  ## the test suite, in some minutes
	$(BIN)/python -m pytest -n $(CORES) --dist worksteal

test-full: $(STAMP)/test  ## the long sweeps too: huge arrays, and the kernels under sanitizers
	$(BIN)/python -m pytest -n $(CORES) --dist worksteal
	POOLGRAD_STRICT=1 $(BIN)/python -m pytest -m full -p no:xdist
	POOLGRAD_STRICT=1 $(BIN)/python -m pytest -p no:xdist studio/tests -k two_hundred
	$(MAKE) sanitize

images: $(STAMP)/test  ## the pictures in docs/images, taken by the browser tests
	POOLGRAD_IMAGES=docs/images $(BIN)/python -m pytest -p no:xdist studio/tests/test_studio_stories.py

# Nothing is built or installed: a machine with a GPU has its own Python with PyTorch, Triton and pytest.
test-gpu:  ## the tests of poolgrad.gpu and poolgrad.torch on a real GPU; GPU_PYTHON=... chooses the Python
	CUDA_VISIBLE_DEVICES=$${CUDA_VISIBLE_DEVICES:-0} PYTHONPATH=src $(GPU_PYTHON) -m pytest -p no:cacheprovider \
		--confcutdir=tests/torch tests/gpu tests/torch

sanitize: $(STAMP)/test
	tools/sanitize.sh $(BIN)/python

lint: $(STAMP)/lint  ## ruff, mypy, biome and tsc, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file studio/pyproject.toml
	npm --prefix studio/web run lint
	$(BIN)/clang-format --dry-run --Werror src/poolgrad/cpu/*.cpp src/poolgrad/cpu/*.hpp src/poolgrad/gpu/*.cu

format: $(STAMP)/lint  ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i src/poolgrad/cpu/*.cpp src/poolgrad/cpu/*.hpp src/poolgrad/gpu/*.cu

bench: $(STAMP)/bench  ## every case against every peer; writes docs/benchmarks
	$(BIN)/python -m benchmarks.cpu --filter "$(FILTER)"

bench-quick: $(STAMP)/bench  ## a part of it in two minutes; FILTER=name chooses
	$(BIN)/python -m benchmarks.cpu --quick --filter "$(FILTER)"

bench-compare: $(STAMP)/bench  ## this tree against an earlier run: BASE=benchmarks/history/<file>.json
	$(BIN)/python -m benchmarks.cpu --quick --filter "$(FILTER)" --compare $(BASE)

clean:  ## remove everything that was built
	rm -rf $(VENV) build studio/web/node_modules studio/src/poolgrad_studio/static studio/src/poolgrad_studio/examples

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 10), "poolgrad needs Python 3.10 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

comma := ,

# One installation serves every target; each adds what it needs beside the package.
define install
	@echo "building poolgrad (some minutes the first time)"
	$(PIP) --editable '.$(1)' $(if $(2),--editable '$(2)')
	@mkdir -p $(STAMP) && touch $(STAMP)/package $@
endef

$(STAMP)/package: $(BIN)/python $(SOURCES)
	$(call install,)

$(STAMP)/studio: $(BIN)/python $(SOURCES) $(STUDIO)
	$(call install,[cli$(comma)files],./studio)

$(STAMP)/test: $(BIN)/python $(SOURCES) $(STUDIO)
	$(call install,[test],./studio[test])
	@touch $(STAMP)/studio   # it has all that the studio needs

$(STAMP)/bench: $(BIN)/python $(SOURCES)
	$(call install,[bench])

$(STAMP)/lint: $(BIN)/python $(SOURCES) $(STUDIO)
	$(call install,[lint],./studio[test])
