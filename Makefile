# The front door. Every target does the set-up it needs (packages, .venv, configuration) and nothing
# when that is already done; the work itself is in tools/, the build proper in meson.build.
#
#     make demo PYTHON=python3.12        another interpreter for .venv, where there is none yet
#     make demo TORCH=torch==2.8.0       another PyTorch in .venv
#     make install PREFIX=$HOME/.local DESTDIR=

PYTHON ?=
TORCH ?=
PREFIX ?= /usr/local
DESTDIR ?=
export PYTHON TORCH PREFIX DESTDIR

.NOTPARALLEL:
.PHONY: help build demo check test test-all verdicts verdicts-thrice bench bench-overhead bench-loader bench-loader-cost \
        bench-what-if bench-lines bench-long wheel fresh install format lint asan tsan clean

help: ## what there is
	@echo 'leat finds why a PyTorch training is slow. Targets:'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'Start with: make demo'

build: ## build/leat, and .venv with PyTorch in which `import leat` works
	@tools/build.sh

demo: build ## a slow training: its verdict, the change it names, the comparison
	@tools/demo.sh

check: ## the daily loop: C tests, golden databases, CLI transcripts, layers; no PyTorch, a minute
	@tools/test.sh check

test: ## every room once: C, Python, CLI, documents, faults, verdict matrix, ASan on parsers, wheel
	@tools/test.sh test

test-all: ## test, and all sanitizers, lint, long fuzzing, the matrix three times and with a core busy
	@tools/test.sh all

verdicts: build ## the verdict matrix alone: real trainings, expected verdicts, score
	@.venv/bin/python tests/e2e/matrix.py

verdicts-thrice: build ## the matrix three times in a row, and once with one core kept busy
	@.venv/bin/python tests/e2e/matrix.py --repeat 3
	@.venv/bin/python tests/e2e/matrix.py --busy

bench: build ## every benchmark
	@tools/bench.sh all

bench-overhead: build ## what leat adds to a step, beside untraced and a peer
	@tools/bench.sh overhead

bench-loader: build ## leat.DataLoader beside torch, format by format: rates, first batch, memory
	@tools/bench.sh loader

bench-loader-cost: build ## what `leat run` takes from a loader's throughput, beside untraced
	@tools/bench.sh loader_cost

bench-what-if: build ## gains that leat predicts, and what the change then brings
	@tools/bench.sh what_if

bench-lines: build ## whether the busy line is found, on every Python at hand
	@tools/bench.sh lines

bench-long: build ## how large run.db is after a million steps of 8 ranks and ten million of one
	@tools/bench.sh long

wheel: ## dist/leat-*.whl, and a trial of it in a fresh environment
	@tools/wheel.sh

fresh: ## what a newcomer does, in a clone of the last commit: build and demo (downloads PyTorch)
	@tests/fresh_clone.sh

install: build ## leat, its man pages, completions and C library below PREFIX (/usr/local)
	@tools/install.sh

format: ## clang-format and ruff rewrite the sources
	@tools/lint.sh --fix

lint: ## clang-format, ruff, cppcheck, shellcheck: all at zero
	@tools/lint.sh

asan: ## the C tests with AddressSanitizer and UBSan
	@tools/build.sh --tests asan

tsan: ## the C tests with ThreadSanitizer
	@tools/build.sh --tests tsan

clean: ## removes what was built; .venv stays
	@rm -rf build build-asan build-tsan dist
