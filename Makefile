# Each target does all of its own set-up in .venv. `make help` lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamps
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CORES  := $(shell getconf _NPROCESSORS_ONLN)
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/poolgrad/cpu/*.cpp src/poolgrad/cpu/*.hpp)
GPU_PYTHON ?= python3
FILTER ?=
BASE   ?=

.DEFAULT_GOAL := help
.PHONY: help run test test-full test-gpu sanitize lint format bench bench-quick bench-compare clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: $(STAMP)/package  ## a tour of the four gradient operators on small data
	@$(BIN)/python examples/tour.py

test: $(STAMP)/test  ## the test suite, in some minutes
	$(BIN)/python -m pytest -n $(CORES) --dist worksteal

test-full: $(STAMP)/test  ## the long sweeps too: huge arrays, and the kernels under sanitizers
	$(BIN)/python -m pytest -n $(CORES) --dist worksteal
	$(BIN)/python -m pytest -m full -p no:xdist
	$(MAKE) sanitize

# Nothing is built or installed: a machine with a GPU has its own Python with PyTorch, Triton and pytest.
test-gpu:  ## the tests of poolgrad.gpu and poolgrad.torch on a real GPU; GPU_PYTHON=... chooses the Python
	CUDA_VISIBLE_DEVICES=$${CUDA_VISIBLE_DEVICES:-0} PYTHONPATH=src $(GPU_PYTHON) -m pytest -p no:cacheprovider \
		--confcutdir=tests/torch tests/gpu tests/torch

sanitize: $(STAMP)/test
	tools/sanitize.sh $(BIN)/python

lint: $(STAMP)/lint  ## ruff, mypy, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror src/poolgrad/cpu/*.cpp src/poolgrad/cpu/*.hpp

format: $(STAMP)/lint  ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i src/poolgrad/cpu/*.cpp src/poolgrad/cpu/*.hpp

bench: $(STAMP)/bench  ## every case against every peer; writes docs/benchmarks
	$(BIN)/python -m benchmarks.cpu --filter "$(FILTER)"

bench-quick: $(STAMP)/bench  ## a part of it in two minutes; FILTER=name chooses
	$(BIN)/python -m benchmarks.cpu --quick --filter "$(FILTER)"

bench-compare: $(STAMP)/bench  ## this tree against an earlier run: BASE=benchmarks/history/<file>.json
	$(BIN)/python -m benchmarks.cpu --quick --filter "$(FILTER)" --compare $(BASE)

clean:  ## remove everything that was built
	rm -rf $(VENV) build

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 10), "poolgrad needs Python 3.10 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

# One installation serves every target; each adds what it needs beside the package.
define install
	@echo "building poolgrad (some minutes the first time)"
	$(PIP) --editable '.$(1)'
	@mkdir -p $(STAMP) && touch $(STAMP)/package $@
endef

$(STAMP)/package: $(BIN)/python $(SOURCES)
	$(call install,)

$(STAMP)/test: $(BIN)/python $(SOURCES)
	$(call install,[test])

$(STAMP)/bench: $(BIN)/python $(SOURCES)
	$(call install,[bench])

$(STAMP)/lint: $(BIN)/python $(SOURCES)
	$(call install,[lint])
