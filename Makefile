# SPDX-License-Identifier: BSD-2-Clause
# Short commands for CMake; `make help` lists them. Build trees: build/ (release), build-dev/,
# build-asan/, build-tsan/, build-fuzz/, build-coverage/, build-debian13/. scripts/install-deps
# installs what is missing on Debian and Ubuntu (as root; else it says what to install).
# NO_INSTALL=1 leaves the system alone.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
WERROR ?= OFF
FUZZ_SECONDS ?= 60
NO_INSTALL ?= 0
# The commit since which make tidy-changed looks; empty: see scripts/run-tidy
BASE ?=
# ctest arguments, for instance TESTS="-R xrc -V"
TESTS ?=

MAKEFLAGS += --no-print-directory
CMAKE := cmake
CTEST = ./scripts/run-ctest $(TESTS)
COMPILE = $(CMAKE) --build $(1) -j $(JOBS)
STAGE = @./scripts/stage
# The plain name last, so that a tool that is not there is an error. Recipes that install one and then
# call it do the second in a make of its own: all lines of a recipe are expanded before the first runs.
CLANG_TOOL = $(firstword $(foreach v,16 17 18 19 20 15,$(shell command -v $(1)-$(v))) $(1))
SOURCES = $(shell find src tests bench include examples -name '*.cc' -o -name '*.c' -o -name '*.h' 2>/dev/null)

ifeq ($(NO_INSTALL),0)
install_deps = ./scripts/install-deps $(1)
else
install_deps = :
endif

.DEFAULT_GOAL := build
.PHONY: build help test test-asan test-tsan fuzz demo package install format format-check tidy dev \
	clean

build: ## release build into build/ (the default)
	@$(call install_deps,build)
	@test -f build/build.ninja || $(CMAKE) --preset release
	@$(call COMPILE,build)

test: ## build and everyday tests of the release tree
	$(STAGE) "  packages" $(MAKE) test-packages
	$(STAGE) "  build" $(MAKE) build-tests
	$(STAGE) "  tests" $(CTEST) --test-dir build -LE long
	@echo "Left out: make test-sanitizers (the same cases under ASan, UBSan and TSan), make fuzz,"
	@echo "make test-long (every MPI, verbs program and mode in full, aarch64; hours)."

.PHONY: test-packages build-tests test-sanitizers test-long
test-packages:
	@$(call install_deps,build test)
build-tests:
	@$(CMAKE) --preset release -DBUILD_TESTING=ON -DHEDDLE_WERROR=$(WERROR)
	@$(call COMPILE,build)

test-sanitizers: test-asan test-tsan ## the same cases under ASan and UBSan, and under TSan

# The suites of our own programs, each in one mode; `make test-long` runs everything. The fuzz targets
# drive the whole device under ASan and UBSan, too.
OTHER_MODES = ^softhca\.(cma|thread|inline|static|doorbell_count)\.|^endpoint\.static
SANITIZED = -L '^(unit|softhca|endpoint|protocol|fi)$$' -LE 'long|foreign' -E '$(OTHER_MODES)
# Each process of these has one thread that uses the provider, or the device: of no interest to TSan.
ONE_THREAD = ^softhca\.Each/MemoryCalls|^fi\.(By/(Tuples|TupleSwitch|ManyTuples|Unanswered)|Seeds/Operations|GetInfo|Objects|Types|no-|few-|small-)
test-asan test-tsan: test-%:
	@$(call install_deps,build test)
	$(STAGE) "  build" $(MAKE) build-$*
	$(STAGE) "  tests" $(CTEST) --test-dir build-$* $(SANITIZED)$(if $(filter tsan,$*),|$(ONE_THREAD))'
build-asan build-tsan: build-%:
	@$(CMAKE) --preset $* -DHEDDLE_WERROR=$(WERROR)
	@$(call COMPILE,build-$*) --target sanitized_suites
.PHONY: build-asan build-tsan

test-long: ## every test, also the long ones, in both UAR kernels and all engine and memory modes
	@$(call install_deps,build test fuzz)
	@$(MAKE) build-tests
	@$(CTEST) --test-dir build
	@for mode in SOFTHCA_UAR=static SOFTHCA_ENGINE=inline SOFTHCA_ENGINE=thread \
		SOFTHCA_MEMORY=cma; do \
		echo "With $$mode"; env $$mode $(CTEST) --test-dir build -L 'softhca|protocol|fi' \
			|| exit 1; done
	@for tree in asan tsan; do \
		$(MAKE) build-$$tree && $(CTEST) --test-dir build-$$tree -LE foreign || exit 1; done
	@$(MAKE) run-fuzz
	@$(MAKE) aarch64
	@$(MAKE) debian13

# Instructions are counted, and packages made, of optimised code only.
coverage: ## which lines and branches `make test` covers, build-coverage/coverage.txt
	@$(call install_deps,build test coverage)
	@$(CMAKE) --preset coverage
	@$(call COMPILE,build-coverage)
	@find build-coverage -name '*.gcda' -delete
	@$(CTEST) --test-dir build-coverage -LE long -E 'instructions|packaging' || \
		echo "Some tests failed: what they cover is counted as far as it ran."
	@./scripts/coverage build-coverage
.PHONY: coverage

.PHONY: aarch64
aarch64: ## compile the libraries for aarch64, run the unit tests under qemu
	@$(call install_deps,aarch64)
	@./scripts/test-aarch64 $(JOBS)

.PHONY: debian13
debian13: ## build and everyday tests on Debian 13, in a chroot (root)
	@test "$$(id -u)" -ne 0 || $(call install_deps,debian13)
	@./scripts/test-debian13 $(JOBS) $(TESTS)

fuzz: ## each fuzz target for FUZZ_SECONDS (60)
	@$(call install_deps,build fuzz)
	@$(MAKE) run-fuzz

.PHONY: run-fuzz
run-fuzz:
	@$(CMAKE) --preset fuzz -DCMAKE_C_COMPILER=$(call CLANG_TOOL,clang) \
		-DCMAKE_CXX_COMPILER=$(call CLANG_TOOL,clang++) -DHEDDLE_WERROR=$(WERROR)
	@$(call COMPILE,build-fuzz)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(CTEST) --test-dir build-fuzz

demo: ## what it looks like: Debian's perftest on softhca, PyPI's MPICH over heddle
	@$(call install_deps,build demo)
	@$(MAKE) build NO_INSTALL=1
	@./scripts/demo build

.PHONY: docs
docs: ## the documentation as a site, build/site/index.html, with the API reference in api/
	@$(call install_deps,docs)
	@mkdocs build --quiet --clean
	@doxygen docs/Doxyfile
	@echo build/site/index.html build/site/api/index.html

package: ## a Debian package, build/*.deb
	@$(call install_deps,build package)
	@$(MAKE) build NO_INSTALL=1
	@cd build && cpack -G DEB
	@ls -l build/*.deb

install: build ## into PREFIX (/usr/local), below DESTDIR if that is set
	@$(CMAKE) --install build --prefix "$(PREFIX)"

dev: ## development build with tests into build-dev/, warnings are errors
	@$(call install_deps,build test)
	@$(CMAKE) --preset dev
	@$(call COMPILE,build-dev)

format: ## clang-format the sources
	@$(call install_deps,format)
	@$(MAKE) run-format

format-check: ## fail if `make format` would change something
	@$(call install_deps,format)
	@$(MAKE) run-format-check
	@! LC_ALL=C.UTF-8 grep -nE '^.{101,}' $(SOURCES)

.PHONY: run-format run-format-check run-tidy
run-format:
	@$(call CLANG_TOOL,clang-format) -i $(SOURCES)
run-format-check:
	@$(call CLANG_TOOL,clang-format) --dry-run -Werror $(SOURCES)

tidy: ## clang-tidy over the sources
	@$(call install_deps,build test tidy)
	@$(MAKE) run-tidy
run-tidy:
	@$(CMAKE) --preset release -DBUILD_TESTING=ON
	@./scripts/run-tidy "$(call CLANG_TOOL,clang-tidy)" build $(JOBS)

# In the time that .ci/run has for it; TIDY_SECONDS=600 gives it more.
tidy-changed: ## clang-tidy over what changed since BASE (the last tag)
	@$(call install_deps,build test tidy)
	@$(MAKE) run-tidy-changed
run-tidy-changed:
	@$(CMAKE) --preset dev
	@./scripts/run-tidy "$(call CLANG_TOOL,clang-tidy)" build-dev $(JOBS) --changed $(BASE)
.PHONY: tidy-changed run-tidy-changed

check-structure: ## includes, sizes, English and assertions of the sources (docs/style.md)
	@./scripts/check-includes
	@./scripts/check-prose
	@./scripts/count-assertions
.PHONY: check-structure

clean: ## remove the build trees
	rm -rf build build-dev build-asan build-tsan build-fuzz build-coverage build-debian13

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		awk -F'|' '{ printf "%-23s %s\n", $$1, $$2 }'
