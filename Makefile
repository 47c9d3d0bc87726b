# Two commands matter: `make run` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Plugins by name: pytest would load those of every package that is installed, in each process, and rewrite the
# asserts of all their modules, Penstock's own among them. A test that hangs says after ten minutes where it does.
# Four workers keep two cores busy: much of the time of these tests is waiting.
PYTEST := $(BIN)/python -m pytest -q -n 4 --dist loadgroup --durations=10 \
	--disable-plugin-autoload -p xdist -p hypothesispytest -p penstock.testing.plugin \
	-o faulthandler_timeout=600

# pytest keeps the test modules whose asserts it has rewritten, also where the environment says to write no bytecode.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup run test test-long check bench bench-spark screenshots clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Penstock needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark,delta,connect]'
	$(BIN)/python -m compileall -q src  # as pip does with what it installs for good
	touch $(STAMP)

run: setup  ## the whole: a node, a stream of orders, a pipeline on Spark, its results growing; Ctrl-C stops it
	$(BIN)/penstock demo

test: setup  ## what CI runs
	$(PYTEST)

test-long: setup  ## soaks and many seeds
	$(PYTEST) -m 'long or not long' --hypothesis-profile=long

check: setup  ## what a reviewer would run
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

bench: setup  ## storage, the broker, its other doors, clusters, Spark, each beside its yardstick; PEER=kafka: and beside Apache Kafka and Spark's connector
	$(BIN)/python -m benchmarks.storage; stored=$$?; $(if $(ROWS),true,$(BIN)/python -m benchmarks.search); searched=$$?; \
	$(BIN)/python -m benchmarks.broker $(if $(PEER),--peer $(PEER)) $(if $(ROWS),--rows $(ROWS)); served=$$?; \
	$(if $(ROWS),true,$(BIN)/python -m benchmarks.counting && $(BIN)/python -m benchmarks.doors && $(BIN)/python -m benchmarks.registry && $(BIN)/python -m benchmarks.typed); opened=$$?; \
	$(if $(ROWS),true,$(BIN)/python -m benchmarks.security $(if $(PEER),--peer $(PEER))); secured=$$?; \
	$(if $(ROWS),true,$(BIN)/python -m benchmarks.cluster $(if $(PEER),--peer $(PEER))); joined=$$?; \
	$(if $(ROWS),true,$(BIN)/python -m benchmarks.spark $(if $(PEER),--peer kafka-connector)) && exit $$((stored | searched | served | opened | secured | joined))

bench-spark: setup  ## Spark alone; PEER=kafka-connector: and its own Kafka connector, fetched the first time
	$(BIN)/python -m benchmarks.spark $(if $(PEER),--peer $(PEER)) $(if $(ROWS),--rows $(ROWS))

screenshots: setup  ## pictures of the console's pages, for README.md and docs/console.md; needs Chromium
	$(BIN)/python -m tests.console.screenshots

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
