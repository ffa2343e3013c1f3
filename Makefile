# make demo and make test need git, make and Python >= 3.11; both set up .venv first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# What this machine has beyond NumPy's baseline, for NPY_DISABLE_CPU_FEATURES.
BEYOND := 'from numpy._core import _multiarray_umath as m; \
	print(*(f for f in m.__cpu_dispatch__ if m.__cpu_features__[f] and f not in m.__cpu_baseline__))'

.PHONY: setup demo test test-cpus lint format bench clean

setup: $(READY)

$(READY): pyproject.toml infra/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=python3.x")'
	@echo "setting up $(VENV) (once; some minutes, mostly torch and ray)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c infra/constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY)
	@$(BIN)/opacc demo

test: $(READY) lint
	$(BIN)/pytest

# The tests with three machines' arithmetic: this one's, torch's own loops without AVX, and the libraries' without AVX.
# Matrix products then differ in their last bits. NumPy's come from OpenBLAS, torch's from MKL and oneDNN.
test-cpus: $(READY)
	$(BIN)/pytest
	ATEN_CPU_CAPABILITY=default $(BIN)/pytest
	beyond=$$($(BIN)/python -c $(BEYOND)) && NPY_DISABLE_CPU_FEATURES="$$beyond" OPENBLAS_CORETYPE=Nehalem \
	MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 $(BIN)/pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	@$(BIN)/python benchmarks/bench.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
