# The two commands of the README, and what they are made of.
#   make demo   build, start a cluster of three OSDs, use it with stock Ceph programs, print what it did,
#               and remove it: a minute and 6 GiB of disk beside the build
#   make test   all tests: unit (with the fuzz targets over their seeds), simulation, interop with stock programs, and the
#               external suites in the folder NACRE_SUITES if that is set
#   make check  what a change must pass before anything else: formatting, lints, tidy, unit tests; under 3 minutes once built
#   make ci     what CI runs: formatting, tidy, documentation, lints, then `make test`
#   make head-to-head   the release build beside a real Ceph on this machine (bench/head-to-head), some 15 minutes
#   make profile   makes bench/profile anew, which release builds are optimized by (bench/train)

CARGO ?= cargo
TARGET = $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
BIN = $(TARGET)/release/nacre
# The same without the profile, to stand beside it.
UNPROFILED_BIN = $(TARGET)/unprofiled/release/nacre
# The program as `cargo test` builds it: with assertions and checks of overflow, and slower. Another may be named instead.
NACRE_BIN ?= $(TARGET)/debug/nacre
export NACRE_BIN
# Those that take less than two minutes each.
SUITES ?= rados-cli ceph-cli rbd-cli fio-verify

RUSTC ?= rustc

# A profile fits one compiler only; the program is the same without it, and slower (docs/bench.md).
PROFILE := $(CURDIR)/bench/profile
ifeq ($(shell $(RUSTC) -vV | cmp -s - $(PROFILE)/rustc && echo fits),fits)
# What has changed since the profile was made is built without it; LLVM would say so of each function. Branches that were never taken go
# into a section of their own: what runs for each write is many times the processor's first cache for code (docs/experiments/0014).
PROFILED = RUSTFLAGS="$(RUSTFLAGS) -Cprofile-use=$(PROFILE)/nacre.profdata -Cllvm-args=-no-pgo-warn-mismatch \
	-Cllvm-args=-enable-split-machine-functions"
else
PROFILED = echo "bench/profile is not for this compiler: built without it ('make profile' makes one)";
endif

.PHONY: demo test check ci lint bin unprofiled-bin unit fuzz suites packages head-to-head profile

demo: packages bin
	bench/demo $(BIN)

# Most tests of daemons wait more than they work: more of them at a time than there are processors.
test: packages
	RUST_TEST_THREADS=6 $(CARGO) test --workspace --tests --quiet --no-fail-fast
	$(MAKE) --no-print-directory fuzz suites

check: lint unit

unit:
	$(CARGO) test --workspace --tests --exclude nacre-interop --exclude nacre-sim --quiet

fuzz:
	test/fuzz

suites:
ifdef NACRE_SUITES
	test/suites $(SUITES)
else
	@echo 'external suites skipped: NACRE_SUITES names no folder of them'
endif

ci:
	$(CARGO) xtask ci

lint:
	$(CARGO) xtask lint

bin:
	@$(PROFILED) $(CARGO) build --release --quiet --package nacre

unprofiled-bin:
	CARGO_TARGET_DIR=$(TARGET)/unprofiled $(CARGO) build --release --quiet --package nacre

head-to-head: packages bin unprofiled-bin
	bench/head-to-head $(BIN) --unprofiled $(UNPROFILED_BIN)

profile: packages
	bench/train

packages:
	@test/packages
