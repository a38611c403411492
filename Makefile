# SPDX-License-Identifier: BSD-2-Clause
# A thin front for CMake and the scripts in tools/. `make help` explains.
PREFIX ?= /usr/local
SECONDS ?= 60
export PREFIX DESTDIR JOBS

.PHONY: all help deps run check check-all check-long check-verbs check-gpu fuzz coverage mutants format metrics install uninstall clean
.NOTPARALLEL:

all: ## build everything into build/; the command is build/pinion
	@tools/job build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "Variables: PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) JOBS=(all cores)"

deps: ## install the packages for building and checking
	@tools/job deps

run: ## install what is missing, build, and run the demonstration
	@tools/job run

check: ## install what is missing, build, and run the tests; 5 minutes
	@tools/check quick

check-all: ## check, analyzers, sanitizers, what is shipped, aarch64; 25 minutes
	@tools/check all

check-long: ## check-all, the long tests and some fuzzing; hours
	@tools/check long

check-verbs: ## the verbs device on this machine's adapters, or in a guest
	@tools/check verbs

check-gpu: ## the CUDA device and unmodified programs on this machine's GPU
	@tools/check gpu

fuzz: ## look for new inputs that break parsers; SECONDS=60 for each
	@tools/job fuzz $(SECONDS)

coverage: ## which lines and branches the tests run
	@tools/job coverage

mutants: ## break the code in small ways: do the tests notice?
	@tools/job mutants

format: ## put the sources into the project's format
	@tools/job format

metrics: ## how long the functions are
	@tools/metrics

install: ## build a release and install it into PREFIX
	@tools/job install

uninstall: ## remove what `make install` installed
	@tools/job uninstall

clean: ## remove the build folders
	rm -rf build build-asan build-tsan build-verify build-release build-aarch64 \
		build-coverage build-mutants build-debian
