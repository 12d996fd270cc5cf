# Every command that a developer types. Each target first installs what it needs (tools/setup.sh).
#
#   PYTHON=python3.12   the interpreter to make .venv with
#   ARGS='-k offsets'   options for pytest (test, long, e2e), tidelog demo (demo), the simulator (sim), chaos and bench
#   TARGETS, IMAGES, TAG, BASE, OUT   options of images; tools/images.sh explains them

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test long check sim chaos bench docs proto images cluster e2e

PYTHON ?=
ARGS ?=
SEEDS ?= 100
MINUTES ?= 2
CASES ?=
JSON ?=
TARGETS ?=
IMAGES ?=
TAG ?=
BASE ?=
OUT ?=

BIN := .venv/bin
GENERATED := .build/proto

help: ## show this list
	@sed -nE 's/^([a-z0-9]+):[^#]*## (.*)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 15

setup: ## make .venv or update it
	@PYTHON='$(PYTHON)' tools/setup.sh

# `exec`: Ctrl-C and a signal to this process must reach the demo, which then removes what it made.
demo: setup ## show the whole product at work: NATS messages, three brokers, Spark, Parquet
	@exec $(BIN)/tidelog demo $(ARGS)

# Tests write below .build, and only the files of failed tests are kept. Four processes run the tests, in the
# shares and the order that tests/conftest.py sets. The tests start about a hundred more processes. Bytecode is
# kept, because otherwise each process would compile the same files again.
test: setup ## run all tests except the long ones; ARGS are options for pytest
	@mkdir -p .build/tests
	@PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT="$(CURDIR)/.build/tests" exec $(BIN)/python -m pytest -n 4 --no-loadscope-reorder $(ARGS)

long: setup ## run the tests that take minutes; one kills the operator after each of its actions
	@mkdir -p .build/tests
	@PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT="$(CURDIR)/.build/tests" exec $(BIN)/python -m pytest -m long -n 2 --no-loadscope-reorder $(ARGS)

check: setup ## check style, types, import contracts and generated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	@$(generate)
	@diff -r -x '*.proto' -x py.typed -x __pycache__ -x __init__.py proto $(GENERATED) || \
	  { echo 'check: the code below proto/ is not what its .proto files give; call make proto' >&2; exit 1; }
	@diff -r crds charts/tidelog/crds || { echo 'check: charts/tidelog/crds must be a copy of crds; copy crds there' >&2; exit 1; }

sim: setup ## run clusters in a simulation, with faults; SEEDS=500
	@exec $(BIN)/python -m simulator --seeds $(SEEDS) $(ARGS)

chaos: setup ## run three real brokers under load and faults, then judge the history; MINUTES=30
	@exec $(BIN)/python -m chaos --minutes $(MINUTES) $(ARGS)

bench: setup ## compare Tidelog with its peers; CASES=produce,consume JSON=out.json
	@exec $(BIN)/python -m bench $(if $(CASES),--cases '$(CASES)') $(if $(JSON),--json '$(JSON)') $(ARGS)

# Every page is read each time: Sphinx does not repeat the warnings of a page that it does not read again.
docs: ## build the documentation site into .build/docs; a broken link is an error
	@PYTHON='$(PYTHON)' tools/setup.sh docs
	@rm -rf .build/docs
	@$(BIN)/python -m sphinx -E -W --keep-going -q -b html -d .build/docs-read -c docs . .build/docs
	@echo 'docs: the site begins at .build/docs/index.html'

proto: setup ## generate the Python code from proto/
	@$(generate)
	rm -f proto/tidelog_proto/*_pb2*
	cp $(GENERATED)/tidelog_proto/*_pb2* proto/tidelog_proto/

images: ## build the container images with docker or buildah; BASE=debian OUT=folder
	@TARGETS='$(TARGETS)' IMAGES='$(IMAGES)' TAG='$(TAG)' BASE='$(BASE)' OUT='$(OUT)' tools/images.sh

cluster: setup ## start a Kubernetes cluster on this machine, with the images; NODES=3
	@NODES='$(NODES)' BASE='$(BASE)' exec e2e/cluster.sh

# One test after the other, in the order of their names: they share a release and break its nodes.
e2e: setup ## test the chart on that cluster, or on the cluster that KUBECONFIG names
	@exec $(BIN)/python -m pytest -p no:randomly --timeout 900 e2e $(ARGS)

# The target is a directory of its own: a mistake in a .proto file must not damage the committed code.
define generate
rm -rf $(GENERATED) && mkdir -p $(GENERATED) && \
PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto \
  --python_out=$(GENERATED) --grpc_python_out=$(GENERATED) \
  --mypy_out=quiet:$(GENERATED) --mypy_grpc_out=quiet:$(GENERATED) proto/tidelog_proto/*.proto
endef
