# Needs git, make and Python >= 3.11; every target sets up .venv first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TOOLS  := .venv-tools
TOOLED := $(TOOLS)/.ready
LOWEST := .venv-lowest
AT_ONCE := -n 3 --dist loadfile
BUSILY  := -n logical --maxprocesses 4 --dist loadfile

# The machine that infra/lock.txt is for; another one installs the versions of infra/constraints.txt, without digests.
MACHINE := import platform as p; print(p.system(), p.machine(), *p.python_version_tuple()[:2], sep="-")
LOCKED  := Linux-x86_64-3-11

# What this machine has beyond NumPy's baseline, for NPY_DISABLE_CPU_FEATURES.
BEYOND := 'from numpy._core import _multiarray_umath as m; \
	print(*(f for f in m.__cpu_dispatch__ if m.__cpu_features__[f] and f not in m.__cpu_baseline__))'

# Tests start a hundred processes, each of which would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# Three processes run tests at once: threads of one would wait, busily, for cores that the others have.
test test-fast test-cpus test-lowest: export OMP_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-cpus test-lowest lint style types format bench bench-gpu results studies docs docs-pages pictures docs-site fuzz chaos lock wheel wheel-check sbom clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/ /' | while read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

setup: $(READY)  ## make .venv with the pinned dependencies

$(READY): pyproject.toml infra/constraints.txt infra/lock.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=python3.x")'
	@echo "setting up $(VENV) (once; some minutes, mostly torch and ray)"
	@$(PYTHON) -m venv $(VENV)
	@if [ "$$($(PYTHON) -c '$(MACHINE)')" = $(LOCKED) ]; then \
		$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r infra/lock.txt; fi
	@$(BIN)/pip install --quiet --disable-pip-version-check -c infra/constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY)  ## a whole audit on handwritten digits, in half a minute
	@$(BIN)/opacc demo

# Three at a time, file by file: each has its own Ray and S3 server, for which it waits now and then.
# For one at a time, and its prints: .venv/bin/pytest -s
# Types are checked during the tests, on one core; their log is printed if something is wrong.
test: $(READY) style  ## lint and the tests
	@log=$$(mktemp); $(MAKE) --no-print-directory types >"$$log" 2>&1 & types=$$!; \
	$(BIN)/pytest $(AT_ONCE); tests=$$?; \
	wait $$types; types=$$?; [ $$types = 0 ] || cat "$$log"; rm -f "$$log"; exit $$((tests ? tests : types))

# One process per core: these tests wait for nothing, and a further process would import all of them again.
test-fast: $(READY)  ## the tests without the markers slow and processes (Ray, servers, browsers); one or two minutes on two cores
	@$(BIN)/pytest -q --fast $(BUSILY) --durations=0 --durations-min=5

# The tests with three machines' arithmetic: this one's, torch's own loops without AVX, and the libraries' without AVX.
# Matrix products then differ in their last bits. NumPy's come from OpenBLAS, torch's from MKL and oneDNN.
test-cpus: $(READY)  ## the tests with the arithmetic of three kinds of CPU
	$(BIN)/pytest $(AT_ONCE)
	ATEN_CPU_CAPABILITY=default $(BIN)/pytest $(AT_ONCE)
	beyond=$$($(BIN)/python -c $(BEYOND)) && NPY_DISABLE_CPU_FEATURES="$$beyond" OPENBLAS_CORETYPE=Nehalem \
	MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 $(BIN)/pytest $(AT_ONCE)

# torch is the one of infra/constraints.txt: the oldest has no small build for machines without a GPU.
test-lowest: $(TOOLED)  ## the tests with the oldest versions that pyproject.toml allows
	@$(PYTHON) -m venv $(LOWEST)
	@$(TOOLS)/bin/uv pip compile pyproject.toml --extra test --resolution lowest-direct --no-emit-package torch \
	--no-header --no-annotate -q -o $(LOWEST)/requirements.txt
	@$(LOWEST)/bin/pip install --quiet --disable-pip-version-check -r $(LOWEST)/requirements.txt \
	"$$(grep '^torch==' infra/constraints.txt)"
	PYTHONPATH=. $(LOWEST)/bin/python -m pytest $(AT_ONCE)

lint: style types  ## style and types

style: $(READY)  ## ruff, and the language of pages, help and errors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python docs/check_language.py

types: $(READY)  ## mypy and the layers of the package
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY)  ## let ruff fix and format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## time the fast paths against plain transcriptions
	@$(BIN)/python benchmarks/bench.py

bench-gpu: $(READY)  ## time extraction on a GPU against a bare loop; skipped without a GPU
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/gpu.py

results: $(READY)  ## measure and write docs/results/NAME.md: make results NAME=methods [ARGUMENTS='…'], or NAME=all ARGUMENTS=cases
	$(BIN)/python benchmarks/write_results.py $(NAME) $(ARGUMENTS)

studies: $(READY)  ## how often intervals cover, whatever was drawn: twenty minutes on two cores; make studies ARGUMENTS='--labels 200'
	$(BIN)/python benchmarks/coverage_grid.py $(ARGUMENTS)

docs: docs-pages docs-site  ## write the generated pages, then build the site

docs-pages: $(READY)  ## write the generated parts of the docs: packages, spec.md, methods.md, study.md, schemas, tables, figure
	$(BIN)/python docs/draw_rooms.py
	$(BIN)/python docs/write_pages.py
	@rm -rf build/schemas && $(BIN)/python docs/write_schemas.py build/schemas
	cp build/schemas/opacc-spec.json build/schemas/opacc-fleet-spec.json docs/schemas
	$(BIN)/python benchmarks/write_results.py --copy
	$(BIN)/python docs/draw_error.py

pictures: $(READY)  ## make the screenshots in docs/pictures; needs chromium
	@PYTHONPATH=tests $(BIN)/python docs/make_pictures.py

# Not --quiet: it hides the warnings that strict counts, and a broken link would be none.
docs-site: $(READY) $(TOOLED)  ## build the documentation as a site, build/site/index.html; a broken link is an error
	@rm -rf build/schemas && $(BIN)/python docs/write_schemas.py build/schemas
	@NO_MKDOCS_2_WARNING=1 $(TOOLS)/bin/mkdocs build

fuzz: $(READY)  ## try mutated specs, files, runs and filters: make fuzz MUTANTS=1000 FILTERS=10000
	@PYTHONPATH=tests $(BIN)/python -m fuzz.campaign 0 $(or $(MUTANTS),250)
	@OPACC_FILTERS=$(or $(FILTERS),10000) $(BIN)/pytest -q tests/lake/test_random_filters.py

chaos: $(READY)  ## disturb audits, people at work on one run, and commands, at random moments: make chaos RUNS=100 HISTORIES=2000
	@PYTHONPATH=tests $(BIN)/python -m chaos $(or $(RUNS),100) $(or $(SEED),0)
	@PYTHONPATH=tests $(BIN)/python -m chaos folder $(or $(KILLS),200) $(or $(SEED),0)
	@PYTHONPATH=tests $(BIN)/python -m chaos s3 $(or $(KILLS_S3),100) $(or $(SEED),0)
	@PYTHONPATH=tests $(BIN)/python -m chaos ray $(or $(KILLS_RAY),30) $(or $(SEED),0)
	@PYTHONPATH=tests $(BIN)/python -m histories $(or $(HISTORIES),200)

$(TOOLED): infra/tools.txt
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/pip install --quiet --disable-pip-version-check -r infra/tools.txt
	@touch $(TOOLED)

lock: $(TOOLED)  ## write infra/lock.txt after a change of dependencies
	$(TOOLS)/bin/uv pip compile pyproject.toml --extra dev -c infra/constraints.txt --generate-hashes --no-annotate \
	--no-header --no-emit-index-url --no-emit-find-links --no-emit-package torch --python-version 3.11 \
	--python-platform x86_64-manylinux_2_28 -q -o infra/lock.txt
	@sed -i '1i # Every package but torch, with the digests of its files: Python 3.11 on Linux, x86-64. Written by `make lock`.' infra/lock.txt

wheel: $(READY)  ## build dist/*.whl
	@rm -rf build dist
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

wheel-check: wheel  ## run the demo from the wheel, in a clean environment outside the repository
	$(BIN)/python infra/check_wheel.py dist/*.whl

sbom: $(READY)  ## list what is installed for the package, with versions and licences
	@$(BIN)/python infra/sbom.py

clean:  ## remove .venv and all that was built
	rm -rf $(VENV) $(TOOLS) $(LOWEST) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
