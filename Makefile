# `make` alone lists the targets. Everything runs in .venv, which `make setup` builds.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Without bytecode: Python compiles what is imported, a small part of all that is installed.
PIP_INSTALL := pip install --quiet --quiet --disable-pip-version-check --no-compile

# All that the coordinator needs, for machines that run nothing else of the package.
GATEWAY := numpy numba pydantic

# Extra arguments: make test PYTEST_ARGS="-k glr".
PYTEST_ARGS ?=
BENCH_ARGS ?=
# Tests start many processes, and without bytecode each would compile all that it imports again: for
# torch that takes seconds.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=8 --dist=worksteal

# The variables silence the plugins' advertisements for successors of mkdocs.
MKDOCS := NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs

.DEFAULT_GOAL := help
.PHONY: help setup test tests test-avx2 test-deployment lint format demo demo-schedulers docs docs-serve wheel-check sbom bench coverage lock hashes clean distclean

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/\1@\2/p' $(MAKEFILE_LIST) | \
	while IFS=@ read -r name text; do printf '  make %-16s %s\n' "$$name" "$$text"; done

setup: $(STAMP) ## Make .venv with the package and its tools, exactly as pinned; instant when up to date
	@:

# An interrupted install leaves no stamp, so the next call finishes it.
$(STAMP): pyproject.toml constraints.txt
	@rm -f $(STAMP)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "freshband needs Python 3.11 or newer, and '$(PYTHON)' is not:" >&2; \
		$(PYTHON) --version >&2; \
		echo "specify another one, such as: make setup PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m $(PIP_INSTALL) --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

test: lint tests ## Lint, then run all tests and doctests except those of test-deployment

tests: setup ## The same without lint
	$(PYTEST) -m 'not deployment' $(PYTEST_ARGS)

# oneDNN, which computes torch's convolutions, has separate code for it.
test-avx2: setup ## Run the training tests as on a CPU without AVX-512 (two minutes)
	ONEDNN_MAX_CPU_ISA=AVX2 $(PYTEST) -m 'not deployment and not slow' \
		-k 'not killed and not interpreter and not contract' \
		tests/federated tests/flower $(PYTEST_ARGS)

# In one process, one after another, because most of them share a federation.
test-deployment: setup ## Run the tests with real Flower servers and nodes (some minutes)
	$(BIN)/python -m pytest -m deployment tests/flower $(PYTEST_ARGS)

lint: setup ## Check style, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup ## Format the code and repair what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: setup ## Train on digits with three policies over the same channels: a table, results/demo.png and demo.nc
	@mkdir -p results
	$(BIN)/freshband compare --policies random,glr-cucb+priority,bayes+priority \
		--dataset digits --set partition.alpha=0.1 --clients 20 --rounds 100 --runs 3 --seed 0 \
		--plot results/demo.png --out results/demo.nc

demo-schedulers: setup ## Compare schedulers on the paper's Fig. 2(a): results/schedulers.png and .nc
	@mkdir -p results
	$(BIN)/freshband simulate --channels fig2 \
		--policies random,m-exp3:paper,m-exp3:paper+aa,glr-cucb:paper,glr-cucb:paper+aa,m-exp3,glr-cucb,glr-cucb+aa,bayes \
		--clients 2 --rounds 20000 --runs 20 --seed 0 --log \
		--plot results/schedulers.png --out results/schedulers.nc

docs: setup ## Build the documentation into site/; warnings are errors
	$(MKDOCS) build --strict

docs-serve: setup ## Show the documentation on this machine while editing it
	$(MKDOCS) serve

wheel-check: setup ## Build sdist and wheel, install the wheel in a clean environment and try it there
	@set -eu; here=$$(pwd); tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(BIN)/python -m build --no-isolation --outdir "$$tmp/dist" . > "$$tmp/build.log" 2>&1 || { \
		cat "$$tmp/build.log"; exit 1; }; \
	ls "$$tmp/dist"; \
	$(BIN)/python -m venv "$$tmp/venv"; \
	echo "a gateway: the wheel without dependencies, and $(GATEWAY)"; \
	"$$tmp/venv/bin/python" -m $(PIP_INSTALL) --constraint constraints.txt $(GATEWAY); \
	"$$tmp/venv/bin/python" -m $(PIP_INSTALL) --no-deps "$$tmp"/dist/*.whl; \
	(cd "$$tmp"; venv/bin/python -W error -c 'import freshband; \
		c = freshband.Coordinator("cucb", 2, 3); print(c.plan()); c.observe([True, None]); \
		c.observe([None, False], round=1); c.join("Eve"); c.save("gateway.npz"); \
		print(freshband.Coordinator.load("gateway.npz"))'); \
	"$$tmp/venv/bin/python" -m $(PIP_INSTALL) --constraint constraints.txt "$$tmp"/dist/*.whl; \
	"$$tmp/venv/bin/python" -m pip --disable-pip-version-check check; \
	mkdir "$$tmp/elsewhere"; cd "$$tmp/elsewhere"; PATH="$$tmp/venv/bin:$$PATH"; set -x; \
	python -c 'import freshband, sys; print(freshband.__version__, freshband.__file__); \
		sys.exit(freshband.__file__.startswith(sys.argv[1]))' "$$here/"; \
	freshband --help > /dev/null; \
	freshband list; \
	freshband simulate --channels piecewise --set n_channels=5 --set n_breakpoints=1 \
		--policies random,glr-cucb --clients 2 --rounds 200 --runs 2 --seed 0 \
		--format json --out tiny.nc; \
	test -s tiny.nc

sbom: setup ## Write a software bill of materials of the tested set, results/sbom.json (CycloneDX)
	@mkdir -p results
	$(BIN)/python tools/sbom.py results/sbom.json

bench: setup ## Run the benchmarks and print their tables
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

coverage: setup ## Run the tests without the compiler, so that coverage includes the kernels
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m 'not deployment' --cov --cov-report=term $(PYTEST_ARGS)

# torch stays at its version unless TORCH names another: results of training depend on it. Its local
# build suffix, such as +cpu, is left out: any build of that version works.
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)
lock: ## Rewrite constraints.txt with the newest versions that pyproject.toml allows; then make hashes
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(PYTHON) -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/python" -m $(PIP_INSTALL) '.[dev,mlflow,wandb]' 'torch==$(TORCH)'; \
	"$$tmp/venv/bin/python" -m pip --disable-pip-version-check freeze --exclude freshband | \
		sed 's/+[a-z0-9.]*$$//' > "$$tmp/pins"; \
	{ sed -n '/^#/p' constraints.txt; LC_ALL=C sort -f "$$tmp/pins"; } > "$$tmp/constraints.txt"; \
	cp "$$tmp/constraints.txt" constraints.txt; wc -l constraints.txt

# The documentation's tools are what needs 3.11.5. uv keeps the versions that are in the file already.
hashes: setup ## Rewrite requirements.lock: constraints.txt, with SHA-256 sums, for every platform
	UV_CUSTOM_COMPILE_COMMAND='make hashes' $(BIN)/uv pip compile --quiet --universal --python-version 3.11.5 \
		--generate-hashes --no-annotate --default-index https://pypi.org/simple --constraint constraints.txt \
		--extra dev --extra mlflow --extra wandb --output-file requirements.lock pyproject.toml

clean: ## Remove caches and build outputs; keeps .venv and results/
	rm -rf build dist site htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## The same, and .venv
	rm -rf $(VENV)
