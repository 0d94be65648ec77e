# `make` lists the targets. Nothing here needs more than Go; tests for which a program is missing are
# left out, and `make test` says which.

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PACKAGES   ?= ./...
# Timing tests need a core of their own: run no more packages at once than there are cores.
PARALLEL   ?= 2
BENCHCOUNT ?= 5
FUZZTIME   ?= 10s
FOR        ?= 10m
SEED       ?= 0
STATES     ?= 150000

TOOL       := go tool -modfile=internal/tools/go.mod
# The race detector needs cgo, which needs a C compiler.
RACE       := $(shell command -v "$$(go env CC)" >/dev/null 2>&1 && [ "$$(go env CGO_ENABLED)" = 1 ] && echo -race)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/shaper and bin/enqueue
	go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/shaper ./cmd/enqueue

.PHONY: test
test: ## run every test that this machine can run, with the race detector; says what was left out and how many ran
	@scripts/left-out "$(RACE)"
	go run ./internal/test/testcount $(RACE) -p $(PARALLEL) -timeout 20m $(PACKAGES)

.PHONY: check
check: lint ## for the edit loop: gofmt, go vet, staticcheck and the short tests, without models, crash points and soaks
	go run ./internal/test/testcount -short $(PACKAGES)

.PHONY: test-cluster
test-cluster: ## run the main end-to-end tests, and every script, on a Redis Cluster
	JOBSHAPER_E2E=cluster go test $(RACE) -timeout 20m -run 'Cluster' -v ./internal/test/e2e ./shaper ./buckets ./internal/redisurl ./internal/test/redistest

.PHONY: soak
soak: ## break things at random for FOR (SEED repeats the draw), then check the promises
	go test -run '^TestSoak$$' -count 1 -timeout 0 -v ./internal/test/e2e -soak.for $(FOR) -soak.seed $(SEED)

.PHONY: sim
sim: ## play whole downstreams in virtual time for FOR, with crashes, restarts and lost tickets (SEED repeats the draw)
	go test -run '^TestSimulatedScripts$$' -count 1 -timeout 0 -v ./shaper -sim.for $(FOR) -sim.seed $(SEED)

.PHONY: explore
explore: ## follow all that can happen in small worlds, each until it has STATES states; takes minutes, and some GB
	go test -run '^TestScenarios$$' -count 1 -timeout 0 -v ./internal/explore -explore.large -explore.most $(STATES)

.PHONY: test-deploy
test-deploy: ## test docker-compose.yml and the Dockerfile, without an engine
	go run ./internal/test/testcount -in deploy/check ./...

.PHONY: lint
lint: fmt vet staticcheck ## gofmt, go vet and staticcheck; changes nothing

.PHONY: fmt
fmt: ## list files that gofmt would change
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted, run gofmt -w:"; echo "$$files"; exit 1; }

.PHONY: vet
vet: ## go vet
	go vet $(PACKAGES)

.PHONY: staticcheck
staticcheck: ## staticcheck, at the version in internal/tools
	$(TOOL) staticcheck $(PACKAGES)

.PHONY: bench
bench: ## run the benchmarks BENCHCOUNT times, for benchstat
	go test -run '^$$' -bench . -benchmem -count $(BENCHCOUNT) -p 1 $(PACKAGES)

.PHONY: fuzz-short
fuzz-short: ## run each fuzz test for FUZZTIME
	@scripts/fuzz-short $(FUZZTIME)

.PHONY: soak-admission
soak-admission: ## the long forms of the admission tests: a hundred rounds of four processes, a million keys
	JOBSHAPER_SOAK=1 go test $(RACE) -count 1 -timeout 30m -run 'ManyProcesses|GivesMemoryBack' ./buckets

.PHONY: sabotage
sabotage: ## break the scripts on purpose, one promise at a time: its test must fail
	@scripts/sabotage

.PHONY: clean
clean: ## remove what build made and the cached test results
	rm -rf bin
	go clean -testcache
