# SPDX-License-Identifier: MIT
# Everything happens in $(VENV), made here; nothing else on the machine is touched.
PYTHON ?= python3
VENV ?= .venv
PEERS := .venv-dgl
BUILD ?= build
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h')

.PHONY: demo test build lint format types ctest ctest-arm sanitize peers bench clean

demo: $(VENV)/.demo ## Build, then the main job on a real graph.
	$(BIN)/python examples/demo.py

test: $(VENV)/.test ## Every test but those marked slow.
	$(BIN)/python -m pytest

build: $(VENV)/.built

$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0 torch_geometric numpy ninja setuptools wheel
	touch $@

$(VENV)/.installed: $(VENV)/.torch setup.py pyproject.toml
	$(PIP) --no-build-isolation --editable .
	touch $@

# Compiles what changed since it was installed.
$(VENV)/.built: $(VENV)/.installed $(SOURCES)
	@test -z "$$(find csrc -newer frontgi_pyg/_C.so)" || $(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

# The packages of an extra, as pyproject.toml lists them, without building the library again for it.
$(VENV)/%.txt: $(VENV)/.installed
	$(BIN)/python -c "from importlib.metadata import requires; \
	  print(*(r.split(';')[0] for r in requires('frontgi_pyg') if 'extra == \"$*\"' in r), sep='\n')" > $@

$(VENV)/.demo: $(VENV)/.built $(VENV)/demo.txt
	$(PIP) --requirement $(VENV)/demo.txt
	touch $@

$(VENV)/.test: $(VENV)/.demo $(VENV)/sparse.txt $(VENV)/test.txt
	@echo "torch_scatter and torch_sparse are compiled from source once: about ten minutes on two cores."
	$(PIP) --no-build-isolation --requirement $(VENV)/sparse.txt --requirement $(VENV)/test.txt
	touch $@

$(VENV)/.dev: $(VENV)/dev.txt
	$(PIP) --requirement $(VENV)/dev.txt
	touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(SOURCES)

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(SOURCES)

types: $(VENV)/.dev
	$(BIN)/mypy

ctest:
	cmake -S . -B $(BUILD)/core -G Ninja -DCMAKE_BUILD_TYPE=Release
	cmake --build $(BUILD)/core
	ctest --test-dir $(BUILD)/core --output-on-failure

ctest-arm: ## The C++ tests for AArch64, cross-compiled and run by qemu-user.
	cmake -S . -B $(BUILD)/arm -G Ninja -DCMAKE_BUILD_TYPE=Release --toolchain csrc/aarch64-linux-gnu.cmake
	cmake --build $(BUILD)/arm
	ctest --test-dir $(BUILD)/arm --output-on-failure

sanitize:
	cmake -S . -B $(BUILD)/sanitize -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFRONTGI_SANITIZE=address,undefined
	cmake --build $(BUILD)/sanitize
	ctest --test-dir $(BUILD)/sanitize --output-on-failure
	cmake -S . -B $(BUILD)/thread -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFRONTGI_SANITIZE=thread
	cmake --build $(BUILD)/thread
	ctest --test-dir $(BUILD)/thread --output-on-failure

peers: $(PEERS)/.installed ## DGL, in an environment of its own, for bench/.

# torch asks for a newer setuptools than DGL; DGL's GraphBolt exists for older torch only and is stood in for.
$(PEERS)/.installed:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 numpy scipy networkx requests tqdm \
	  psutil pandas pyyaml pydantic packaging 'setuptools<81'
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --no-deps dgl==2.1.0
	touch $@

bench: $(VENV)/.test peers ## Ours beside DGL, PyG and torch; takes long.
	$(BIN)/python bench/layers.py

clean:
	rm -rf $(BUILD) $(VENV) $(PEERS) frontgi_pyg/_C*.so *.egg-info
