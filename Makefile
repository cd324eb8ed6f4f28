# make run, make test, make bench and make docs set up .venv by themselves, with the versions of requirements.txt.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test test-all bench docs device setup clean

run: $(READY)
	$(BIN)/resofire train digits

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

# The same and everything marked `deep`: long matrices, Triton's interpreter, fuzzing.
test-all: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 -m ""

bench: $(READY)
	$(BIN)/resofire bench neurons --json benchmarks/results/neurons.json
	$(BIN)/resofire bench networks --json benchmarks/results/networks.json
	$(BIN)/resofire bench peers --json benchmarks/results/peers.json --figure docs/peers
	$(BIN)/resofire bench events --json benchmarks/results/events.json --figure docs/events
	$(BIN)/resofire bench stream --json benchmarks/results/stream.json

# The documentation as a site, with the API from docstrings: build/site/index.html.
docs: $(READY)
	$(BIN)/pip install --quiet --requirement docs/requirements.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

# The C file of a trained network on a Cortex-M4 in QEMU. Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi
# qemu-system-arm; without them it says so and ends well.
device: $(READY)
	$(BIN)/python device/run.py

setup: $(READY)

# torch comes first and alone: it decides which versions of others fit. SpikingJelly and snnTorch are peers of the
# benchmarks, installed without their dependencies: their neurons need only torch, loguru and tqdm.
$(READY): requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet "$$(grep '^torch==' requirements.txt)"
	$(BIN)/pip install --quiet --requirement requirements.txt
	$(BIN)/pip install --quiet --no-deps spikingjelly==2.0.0 snntorch==1.0.0 loguru==0.7.3
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(READY)

clean:
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
