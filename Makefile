# The two commands of the README, and what they are made of.
#   make demo   build, start a cluster of three OSDs, use it with stock Ceph programs, print what it did
#   make test   all tests: unit, simulation, interop with stock programs
#   make ci     what CI runs: formatting, lints, tidy, then `make test`

CARGO ?= cargo
BIN = $(or $(CARGO_TARGET_DIR),target)/release/nacre

.PHONY: demo test ci lint bin packages

demo: packages bin
	bench/demo $(BIN)

test: packages bin
	$(CARGO) test --workspace --quiet --no-fail-fast

ci: lint test

lint:
	$(CARGO) xtask lint

bin:
	$(CARGO) build --release --quiet --package nacre

packages:
	@test/packages
