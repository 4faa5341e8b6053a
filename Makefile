# Every target works on a fresh clone: the virtual environment is made when it is missing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# What runs it, and what is needed beside to test it.
RUNS   := $(VENV)/.runs
READY  := $(VENV)/.ready

# Of the image.
VERSION   = $(shell sed -n 's/^version = //p' setup.cfg)
REVISION  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
IMAGE     ?= allaboard
TAG       ?= $(VERSION)
PLATFORMS ?= linux/amd64,linux/arm64
ARCHIVE   := --output type=oci,dest=build/image.tar

.DEFAULT_GOAL := help
JOBS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))
# Each control plane takes half a core: with more of them tests of leases and time-outs wait for the API server.
PLANES ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
SEARCHES := fgd tight quality joint scale fragmentation fair_search gpu_planning rules
RELEASES := $(notdir $(wildcard tests/e2e/controlplane/kubernetes/*))

.PHONY: help demo test test-fast test-busy browser faults e2e judged e2e-kind nightly $(RELEASES:%=e2e-%) lint typecheck docs picture run sandbox cluster cluster-down image lock clean bench bench-quick

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(RUNS): setup.cfg constraints.txt
	@echo "Installing into $(VENV): takes a minute, and the network for packages from PyPI ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, and $(PYTHON) is `$(PYTHON) -V 2>&1`; name another: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@{ test "`$(BIN)/python -V 2>&1`" = "`$(PYTHON) -V 2>&1`" && $(BIN)/python -m pip --version >/dev/null 2>&1; } || \
		$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[sandbox]'
	@touch $@

$(READY): $(RUNS)
	@echo "Installing what the tests need: takes a minute ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(RUNS) ## Watch real manifests being scheduled whole or not at all (under a minute)
	$(BIN)/allaboard demo

# Two processes more than cores, since some tests wait. JOBS=0 runs the tests in this process, for a debugger. Without a place for bytecode
# every program that the tests start would be compiled each time.
PYTEST = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath $(VENV))/bytecode $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test: $(READY) ## Run every test that needs only the sandbox, in parallel; twenty minutes on two cores
	$(PYTEST)

# The unit tests without those that start processes of their own.
test-fast: $(READY) ## Run the tests that a change should pass first: the unit tests that need this process only; six minutes on two cores
	$(PYTEST) tests/unit -m 'not processes'

# A test that fails here and not in `make test` depends on speed: it should wait for what it asks about.
test-busy: $(READY) ## Run the tests of `make test` beside two busy loops for each processor, as on a machine that others use, too; half an hour
	@loops=; trap 'kill $$loops' EXIT INT TERM; \
	for loop in $$(seq $$((2 * $$(getconf _NPROCESSORS_ONLN)))); do $(BIN)/python -c 'while True: pass' & loops="$$loops $$!"; done; \
	$(PYTEST) --timeout=900

# CHROMIUM=… names another browser. What the page looks like is in build/screenshots then.
browser: $(READY) ## Drive the departure board in a real Chromium (root installs Debian's package where it is missing); two minutes
	$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m pytest tests/browser
	$(BIN)/python benchmarks/page.py --factor 3 --runs 5 --picture build/screenshots/large.png

# K8S=1.34 takes an older Kubernetes than the newest: one of those in tests/e2e/controlplane/kubernetes.
# E2E_EXISTING=1 takes the cluster that KUBECONFIG names instead. The integration suite and the judged schedules stay out then: they want a
# cluster for themselves. Else there is a control plane for each of PLANES processes, and a module's tests are played on one of them; PLANES=0
# plays all on one, in this process.
e2e: $(READY) ## Run the integration suite and the end-to-end tests on a real control plane (builds it with Go at first: ten minutes); ten minutes
	$(BIN)/python -m tests.e2e.controlplane build $(if $(E2E_EXISTING),kwok training-operator.v1)
	$(BIN)/python -m pytest --home=controlplane tests/e2e $(if $(E2E_EXISTING),--ignore=tests/e2e/test_judged.py,\
		tests/integration -n $(PLANES) --dist loadfile --no-loadscope-reorder)

judged: $(READY) ## Play only the random schedules of the end-to-end tests before the judge, ten minutes; SCHEDULES=50, SEED=… plays them again
	$(BIN)/python -m tests.e2e.controlplane build
	$(BIN)/python -m pytest tests/e2e/test_judged.py --home=controlplane

faults: $(READY) ## Measure what holds under faults, an hour or two; SEED=… plays one random schedule again
	PYTHONHASHSEED=0 $(BIN)/python -m tests.faults $(if $(SEED),--seed='$(SEED)')

# WORDS="--help" shows the options; WORDS="tests/e2e/kind -k ranks" selects tests.
e2e-kind: $(READY) ## Run the end-to-end tests on a kind cluster; where no registry answers, as root, all of it is built first: a quarter of an hour
	$(BIN)/python -m tests.e2e.kind $(WORDS)

# `make --keep-going nightly` goes on after what fails.
nightly: $(RELEASES:%=e2e-%) e2e-kind faults test-busy ## Run what CI leaves out: e2e on every release of Kubernetes, on kind, what holds under faults, and a busy machine; five hours

$(RELEASES:%=e2e-%): e2e-%:
	$(MAKE) e2e K8S=$*

lint: $(READY) ## Check style (ruff), the layers of the architecture (import-linter) and language
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.language

typecheck: $(READY) ## Check types (mypy, strict)
	$(BIN)/mypy
	$(BIN)/mypy benchmarks

docs: $(READY) ## Build the documentation site into build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict # without --quiet, which hides the warnings that strict counts
	@echo "The site is in build/site: open build/site/index.html"

picture: $(RUNS) ## Render the picture of the demo, docs/demo.svg
	$(BIN)/allaboard demo --picture docs/demo.svg

run: $(RUNS) ## Run the operator on the cluster that KUBECONFIG names
	$(BIN)/kopf run operator/main.py -A

sandbox: $(RUNS) ## Serve a sandbox cluster for kubectl until interrupted
	$(BIN)/allaboard sandbox

cluster: $(READY) ## Boot a real control plane (etcd, kube-apiserver, controllers, fake kubelets) and print its KUBECONFIG
	@$(BIN)/python -m tests.e2e.controlplane up

cluster-down: $(READY) ## End what `make cluster` has started
	@$(BIN)/python -m tests.e2e.controlplane down

# PLATFORMS=…, BASE=…: what it is built for and on. Neither several platforms nor what is attested of them fit into the classic image store, so that without PUSH it becomes an archive.
image: ## Build the image with SBOM and provenance into build/image.tar (needs docker buildx); IMAGE=… TAG=… PUSH=1 pushes it
	mkdir -p build
	docker buildx build --platform '$(PLATFORMS)' --tag '$(IMAGE):$(TAG)' --build-arg VERSION='$(VERSION)' --build-arg REVISION='$(REVISION)' \
		$(if $(BASE),--build-arg BASE='$(BASE)') --sbom=true --provenance=mode=max --metadata-file build/image.json \
		$(if $(filter 1 true,$(PUSH)),--push,$(ARCHIVE)) .

bench: $(READY) ## Run the benchmarks
	for benchmark in $(SEARCHES) waking policy preemption bench_memory api_loop gpu_scrape hostile throughput churn; do $(BIN)/python benchmarks/$$benchmark.py || exit 1; done

bench-quick: $(READY) ## Run a sample of the benchmarks of the search, in four minutes
	for benchmark in $(SEARCHES); do $(BIN)/python benchmarks/$$benchmark.py --quick || exit 1; done

# What the image is installed from, and what wheels are built with: by the versions of constraints.txt, with hashes.
LOCK = $(BIN)/uv pip compile --constraint constraints.txt --generate-hashes --universal --python-version 3.11 --no-annotate \
	--custom-compile-command "make lock" --quiet
BUILDS_WITH := import tomllib; print("build", *tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

lock: $(READY) ## Write requirements.txt and requirements-build.txt, with hashes, from setup.cfg, pyproject.toml and constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(LOCK) setup.cfg --extra admission --output-file requirements.txt
	$(BIN)/python -c '$(BUILDS_WITH)' | $(LOCK) - --output-file requirements-build.txt

clean: ## Remove the virtual environment and everything built
	rm -rf $(VENV) build dist operator/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
