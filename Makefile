# make run      everything in one process on embedded services, with a small demo registry
# make test     every test, with real PostgreSQL and Redis
# make build    ./bin/hubn
# make bench    the benchmarks; BENCH=name runs one group
#
# On Debian as root, what is missing is installed; elsewhere it is named.

SHELL := /bin/bash
export PATH := $(PATH):/usr/local/go/bin

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS := -s -w -X hubn/app.release=$(VERSION)

# Tests that start servers of other projects fail, instead of being skipped,
# where those can be installed.
HUBN_PEERS ?= $(shell .ci/setup can-install && echo required)
export HUBN_PEERS

# Each package with a database keeps a core busy; more at a time on a small
# machine only makes tests wait for each other.
TEST_PACKAGES_AT_A_TIME ?= 2
TEST_TIMEOUT ?= 20m

.PHONY: run test build bench check

build:
	@.ci/setup build
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/hubn .

run:
	@.ci/setup run
	@$(MAKE) --no-print-directory build
	@exec ./bin/hubn dev

check:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	go vet ./...

test:
	@.ci/setup test
	@$(MAKE) --no-print-directory check
	go test -race -timeout $(TEST_TIMEOUT) -p $(TEST_PACKAGES_AT_A_TIME) ./...

bench:
	@.ci/setup bench
	@go run ./app/e2e/bench $(BENCH)
