# Two commands do everything on a fresh machine: `make serve` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# ONNX Runtime's build for NVIDIA GPUs where a GPU answers, the smaller CPU build elsewhere.
RUNTIME := $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
SERVE_ARGS ?=
TEST_PROCESSES ?= $(shell expr $$(nproc) + 3)

.DEFAULT_GOAL := help
.PHONY: help serve demo test check bench bench-peers lock image-test clean

help:  ## List every target
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

serve: $(VENV)/.serving  ## Serve the shipped bundle on 127.0.0.1:8000 (SERVE_ARGS="--port 9000 …")
	$(BIN)/portcullis serve $(SERVE_ARGS)

demo: $(VENV)/.training  ## Train, calibrate, evaluate and export on `digits`, in under 2 minutes
	$(BIN)/portcullis-train run --recipe digits

# A process a core and three more, since many tests wait for servers; each file's tests in one of them, files with long ones
# first (tests/conftest.py), and one thread each for torch: two would wait for each other. Lint and types are tests too.
test: $(VENV)/.development  ## Lint, types and all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

check: $(VENV)/.development  ## Lint and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.development  ## Measure the service against the raw engine
	$(BIN)/python -m bench

bench-peers: $(VENV)/.development  ## The same loads against mosec, LitServe, BentoML, MLServer and Ray Serve
	$(BIN)/python -m bench.with_peers

lock: $(VENV)/.development  ## Write deploy/locks, the hashes of what the images and `make serve` install
	$(BIN)/python -m deploy.lock

image-test: $(VENV)/.development  ## Build the cpu image for real and ask it (root, buildah, mmdebstrap)
	IMAGE_TEST=1 $(BIN)/python -m pytest tests/deploy/test_image.py

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# One stamp a set of packages: made again when what it depends on changes.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Portcullis needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)

# As the Dockerfile does it: the same packages by the same hashes, CUDA among them on a GPU's host.
$(VENV)/.serving: pyproject.toml deploy/locks/$(RUNTIME).txt | $(BIN)/python
	$(PIP) --no-deps --require-hashes -r deploy/locks/build.txt -r deploy/locks/$(RUNTIME).txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.training: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -c constraints.txt -e '.[$(RUNTIME),training,photos]'
	@touch $@ $(VENV)/.serving

$(VENV)/.development: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -c constraints.txt -e '.[$(RUNTIME),training,photos,dev]'
	@touch $@ $(VENV)/.training $(VENV)/.serving
