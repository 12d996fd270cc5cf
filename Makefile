# Everything that a developer types. Each target sets up what it needs first (tools/setup.sh).
#
#   PYTHON=python3.12   the interpreter to make .venv with
#   ARGS='-k offsets'   passed on to pytest (test), tidelog demo (demo), the simulator (sim), chaos, the benchmark
#   TARGETS, IMAGES, TAG, BASE, OUT   of images; tools/images.sh says what they are

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test long check sim chaos bench proto images cluster e2e

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

help: ## this list
	@sed -nE 's/^([a-z0-9]+):[^#]*## (.*)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 15

setup: ## make .venv, or bring it up to date
	@PYTHON='$(PYTHON)' tools/setup.sh

# `exec`, so that Ctrl-C and a signal to this process reach the demo, which cleans up after itself.
demo: setup ## see the whole idea run: NATS messages, three brokers, Spark, Parquet
	@exec $(BIN)/tidelog demo $(ARGS)

# What tests write stays below .build, and only what failed tests wrote is kept. In four processes, in the
# shares and the order that tests/conftest.py gives them, and some hundred more that tests start: bytecode is
# kept, or each of them would compile the same files again.
test: setup ## all tests; ARGS goes to pytest
	@mkdir -p .build/tests
	@PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT="$(CURDIR)/.build/tests" exec $(BIN)/python -m pytest -n 4 --no-loadscope-reorder $(ARGS)

long: setup ## the tests that take minutes, such as the operator killed after each of its actions
	@mkdir -p .build/tests
	@PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT="$(CURDIR)/.build/tests" exec $(BIN)/python -m pytest -m long -n 2 $(ARGS)

check: setup ## style, types, import contracts, generated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	@$(generate)
	@diff -r -x '*.proto' -x py.typed -x __pycache__ -x __init__.py proto $(GENERATED) || \
	  { echo 'check: the code below proto/ is not what its .proto files give; call make proto' >&2; exit 1; }
	@diff -r crds charts/tidelog/crds || { echo 'check: charts/tidelog/crds is to be a copy of crds' >&2; exit 1; }

sim: setup ## clusters in a simulation, with faults; SEEDS=500
	@exec $(BIN)/python -m simulator --seeds $(SEEDS) $(ARGS)

chaos: setup ## three real brokers under load and faults, then a judgement; MINUTES=30
	@exec $(BIN)/python -m chaos --minutes $(MINUTES) $(ARGS)

bench: setup ## compare with peers; CASES=produce,consume JSON=out.json
	@exec $(BIN)/python -m bench $(if $(CASES),--cases '$(CASES)') $(if $(JSON),--json '$(JSON)') $(ARGS)

proto: setup ## generate the Python code from proto/
	@$(generate)
	rm -f proto/tidelog_proto/*_pb2*
	cp $(GENERATED)/tidelog_proto/*_pb2* proto/tidelog_proto/

images: ## container images, with docker or buildah; BASE=debian OUT=folder
	@TARGETS='$(TARGETS)' IMAGES='$(IMAGES)' TAG='$(TAG)' BASE='$(BASE)' OUT='$(OUT)' tools/images.sh

cluster: setup ## a Kubernetes cluster on this machine, with the images; NODES=3
	@NODES='$(NODES)' BASE='$(BASE)' exec e2e/cluster.sh

# One after the other, and in the order of their names: they share a release, and break its nodes.
e2e: setup ## try the chart on that cluster, or on the one that KUBECONFIG names
	@exec $(BIN)/python -m pytest -p no:randomly --timeout 900 e2e $(ARGS)

# Into a directory of its own, so that a mistake in a .proto file leaves the committed code alone.
define generate
rm -rf $(GENERATED) && mkdir -p $(GENERATED) && \
PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto \
  --python_out=$(GENERATED) --grpc_python_out=$(GENERATED) \
  --mypy_out=quiet:$(GENERATED) --mypy_grpc_out=quiet:$(GENERATED) proto/tidelog_proto/*.proto
endef
