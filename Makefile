# `make help` lists the targets. Variables are told in README.md.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MTP_TARGETS := eval-mtp1 eval-mtp2 eval-mtp3 eval-mtp4 eval-mtp5
.PHONY: help setup test test-vllm check eval eval-full eval-eager eval-graph $(MTP_TARGETS) prove bench bench-kernels report baseline compile-gate

PY := .venv/bin/python
EVALSUITE := $(PY) -m evalsuite
LIMIT ?= 200
ARGS ?=

run_flags = $(if $(ENGINE),--engine "$(ENGINE)") $(if $(MODEL),--model "$(MODEL)") \
	$(if $(TASK),--task "$(TASK)") $(if $(OUT),--out "$(OUT)") \
	$(if $(BASELINE),--baseline "$(BASELINE)") $(foreach url,$(URL),--url "$(url)") \
	$(foreach log,$(LOG),--log "$(log)") \
	$(if $(REFERENCES),--references)
run = $(EVALSUITE) run $(if $(SUITE),"$(SUITE)") $(run_flags) --limit $(1) $(2) $(ARGS)

help: ## list the targets
	@grep -hE '^(# )?[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^# //; s/:.*## /\t/' | expand -t 16

setup: ## create .venv and install (PYTHON=, TORCH_INDEX=)
	@PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" scripts/setup.sh

test: setup ## run the tests
	$(PY) -m pytest -n auto --dist loadfile $(ARGS)

compile-gate: setup ## compile every kernel for sm_90, gfx942 and gfx950; no GPU needed
	PYTHONPATH=kernels $(PY) -m sparse_mla.compile_gate $(ARGS)

test-vllm: setup ## tests on real vLLM on the CPU, in .venv-vllm
	scripts/setup_vllm.sh
	$(PY) -m pytest -m "vllm and not slow" tests/serving --durations=25 $(ARGS)

check: setup ## lint, format, types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --strict evalsuite $(wildcard kernels)

eval: setup ## the seven arms on LIMIT (200) items, judged, with a report
	$(call run,$(LIMIT))

eval-full: setup ## the seven arms on all items
	$(call run,all)

eval-eager: setup ## the eager arm
	$(call run,$(LIMIT),--arm eager)

# eval-mtp1: ## to eval-mtp5: that MTP arm beside eager and graph
eval-graph: setup ## the graph arm beside eager
	$(call run,$(LIMIT),--arm graph)

$(MTP_TARGETS): eval-mtp%: setup
	$(call run,$(LIMIT),--arm mtp$*)

prove: setup ## inject faults and show that each is caught
	$(EVALSUITE) prove $(ARGS)

bench: setup ## run the benchmarks (BENCH=name for one)
	$(PY) scripts/bench.py $(BENCH)

bench-kernels: setup ## sparse MLA on this GPU: the numeric suite, then the peers
	$(PY) benchmarks/kernel_numerics.py
	$(PY) benchmarks/kernels.py --warm $(ARGS)
	$(PY) benchmarks/indexer_kernels.py

report: setup ## write the reports of RUN=
	$(EVALSUITE) report "$(RUN)" $(ARGS)

baseline: setup ## accept RUN= as baseline, saying WHY=
	$(EVALSUITE) baseline accept "$(RUN)" --why "$(WHY)" $(ARGS)
