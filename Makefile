# make demo: install, train CartPole-v1, show the result. make test: install everything, run the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := runs/demo
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= passive
# images of containers often set this; every command would then compile the modules of torch and Proximo again, about 5 s
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test gpu long oldest eject faults coverage lint site clean chaos stranger

demo: $(VENV)/.core
	rm -rf $(RUN)
	$(BIN)/proximo train ppo --env-id CartPole-v1 --total-timesteps 500000 --seed 1 --compile --run-dir $(RUN)
	$(BIN)/proximo eval $(RUN) --episodes 100
	$(BIN)/proximo plot $(RUN) --out $(RUN)/curve.png
	$(BIN)/proximo watch $(RUN)
	@echo "learning curve: $(RUN)/curve.png   video: $(RUN)/videos/watch.mp4"

# GPUs are hidden: these tests compare what a CPU computes. A test that takes fifteen minutes hangs: it fails, and the others go on
test: $(VENV)/.all
	CUDA_VISIBLE_DEVICES= $(BIN)/python -m pytest -n 3 --dist worksteal \
		-o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

# the tests of training on an NVIDIA GPU; make test skips them. XLA reads its flags when the first test asks for a device
gpu: $(VENV)/.all
	XLA_FLAGS=--xla_gpu_deterministic_ops=true $(BIN)/python -m pytest tests/on_torch/test_cuda.py tests/on_jax/test_gpu.py

# the tests that take long and repeat what smaller ones check; make test leaves them out
long: $(VENV)/.all
	XLA_FLAGS= $(BIN)/python -m pytest -m long

# the oldest versions that pyproject.toml allows, in an environment of their own, and the tests of the folders that use other
# packages most; what old packages warn of is no error. PyPI's torch needs several GB. `make oldest OLDEST_TESTS=tests/cli`
OLDEST := build/oldest
OLDEST_TESTS ?= tests/cli tests/envs tests/frameworks tests/models tests/on_torch tests/on_jax
oldest: $(VENV)/.torch
	$(PYTHON) -m venv --clear --without-pip $(OLDEST)
	$(BIN)/uv pip compile -q --resolution lowest-direct --extra all --extra minigrid --python $(OLDEST)/bin/python \
		pyproject.toml -o $(OLDEST)/versions.txt
	VIRTUAL_ENV=$(abspath $(OLDEST)) $(BIN)/uv pip install -q -c $(OLDEST)/versions.txt -e ".[all,minigrid,dev]"
	CUDA_VISIBLE_DEVICES= $(OLDEST)/bin/python -m pytest -n 2 -W default -m "not slow and not long" $(OLDEST_TESTS)

# every variant that `proximo eject` supports, and other settings of ppo, about fifteen minutes; make test ejects ppo only, on
# torch and on JAX
eject: $(VENV)/.all
	PROXIMO_EJECT_ALL=1 $(BIN)/python -m pytest tests/models/export/eject

# the whole campaign of faults; writes its table to docs/reliability.md
faults: $(VENV)/.all
	$(BIN)/python tools/faults.py

# random processes of eight runs on Ray are killed for ten minutes; the results must be those of an undisturbed benchmark
chaos: $(VENV)/.all
	PYTHONPATH=. $(BIN)/python tools/chaos.py --minutes 10

# what a user does who has only the wheel, in bare virtual environments; needs a package index
stranger: $(VENV)/.all
	$(BIN)/python tools/strangers_path.py

# every test, with the optimizations of XLA that users have; tests/conftest.py turns them off
coverage: $(VENV)/.all
	XLA_FLAGS= $(BIN)/python -m pytest -m "" -n 3 --dist worksteal --cov --cov-report=
	$(BIN)/python -m coverage report
	$(BIN)/python -m coverage json -q -o build/coverage/report.json
	$(BIN)/python tools/coverage_floor.py build/coverage/report.json

lint: $(VENV)/.all
	$(BIN)/ruff check .
	$(BIN)/mypy

site: $(VENV)/.all
	$(BIN)/mkdocs build

# uv installs in a quarter of the time of pip; `make demo INSTALL=.venv/bin/pip` takes pip. uv does not read the settings
# of pip: the three below are handed on, others have names of their own (https://docs.astral.sh/uv/pip/compatibility)
INSTALL ?= $(BIN)/uv pip
export VIRTUAL_ENV := $(abspath $(VENV))
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
ifdef PIP_EXTRA_INDEX_URL
export UV_INDEX ?= $(PIP_EXTRA_INDEX_URL)
# as pip: the newest version that the pins allow, on whatever index it is
export UV_INDEX_STRATEGY ?= unsafe-best-match
endif
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif

# torch first and by itself: another package asking for it would take a build of several GB
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --no-compile -c constraints.txt uv
	$(INSTALL) install -q -c constraints.txt torch
	touch $@

$(VENV)/.core: $(VENV)/.torch pyproject.toml
	$(INSTALL) install -q -c constraints.txt -e .
	touch $@

$(VENV)/.all: $(VENV)/.torch pyproject.toml
	UV_COMPILE_BYTECODE=1 $(INSTALL) install -q -c constraints.txt -e ".[all,dev]"
	touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) build *.egg-info
