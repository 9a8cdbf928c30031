# Every target sets itself up through `setup`, which does nothing when nothing changed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROTOS := $(wildcard protos/*.proto)
# Tests run side by side: many wait, for peers that die or never come.
WORKERS ?= 3

.PHONY: setup demo test test-slow lint format protos check-protos bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard common/groups/native/*)
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "FLORIST needs Python 3.11 or newer: install it, or name it: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	mkdir -p .typecheck/florist
	for folder in protos common active_party passive_party cli; do ln -sfn ../../$$folder .typecheck/florist/$$folder; done
	touch $@

protos: $(STAMP)
	PATH="$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I florist/protos=protos \
		--python_out=.typecheck --mypy_out=quiet:.typecheck $(PROTOS:protos/%=florist/protos/%)

check-protos: protos
	@git diff --exit-code -- protos || { echo "The generated code differs from the .proto files: commit what 'make protos' wrote."; exit 1; }

lint: $(STAMP) check-protos
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m slow

demo: $(STAMP)
	$(BIN)/florist demo

bench: $(STAMP)
	$(BIN)/python benchmarks/psu.py --ids 131072 --json

clean:
	rm -rf $(VENV) .typecheck build *.egg-info demo-run
