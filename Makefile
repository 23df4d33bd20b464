# The two commands of the README, and what they are made of.
#   make demo   build, start a cluster of three OSDs, use it with stock Ceph programs, print what it did
#   make test   all tests: unit, simulation, interop with stock programs
#   make ci     what CI runs: formatting, lints, tidy, then `make test`
#   make head-to-head   the release build beside a real Ceph on this machine (bench/head-to-head), some 10 minutes
#   make profile   makes bench/profile anew, which release builds are optimized by (bench/train)

CARGO ?= cargo
BIN = $(or $(CARGO_TARGET_DIR),target)/release/nacre

RUSTC ?= rustc

# A profile fits one compiler only; the program is the same without it, and slower (docs/bench.md).
PROFILE := $(CURDIR)/bench/profile
ifeq ($(shell $(RUSTC) -vV | cmp -s - $(PROFILE)/rustc && echo fits),fits)
PROFILED = RUSTFLAGS="$(RUSTFLAGS) -Cprofile-use=$(PROFILE)/nacre.profdata"
else
PROFILED = echo "bench/profile is not for this compiler: built without it ('make profile' makes one)";
endif

.PHONY: demo test ci lint bin packages head-to-head profile

demo: packages bin
	bench/demo $(BIN)

test: packages bin
	$(CARGO) test --workspace --quiet --no-fail-fast

ci: lint test

lint:
	$(CARGO) xtask lint

bin:
	@$(PROFILED) $(CARGO) build --release --quiet --package nacre

head-to-head: packages bin
	bench/head-to-head $(BIN)

profile: packages
	bench/train

packages:
	@test/packages
