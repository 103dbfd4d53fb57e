# The comment of package internal/testservers says in which ways the tests find their servers. COMPENSATOR_SERVERS chooses a way.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
PACKAGES_AT_ONCE ?= 2 # number of a module's test packages that run at once; each starts its own servers, and mostly waits

# The flags leave out debugging information, because linking it takes as long as the rest. They leave out vet, which make check
# runs. GOGC trades memory for time. The race detector waits 50 ms at the end of each of a hundred processes, not a second.
# TMPDIR is in memory if there is room. Data in memory also survives the kill of a server, so the tests stay meaningful.
in_memory := $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 4000000 2>/dev/null && echo TMPDIR=/dev/shm)
# SQLite is C code translated to Go. The race detector would make it three times slower, and would find no race of the library.
race := -race '-gcflags=modernc.org/...=-race=false -d=checkptr=0'
memory = $(if $(TMPDIR),,$(in_memory))
go_test = $(memory) GOGC=400 GORACE=atexit_sleep_ms=50 $(GO) test $(race) -shuffle=on -count=1 -timeout 30m -vet=off \
	-ldflags=-w -p $(strip $(or $(at_once/$*),$(PACKAGES_AT_ONCE)))
build := $(CURDIR)/build
# staticcheck is the path of the built tool. go does not accept -modfile in a workspace, so GOWORK=off finds the path.
staticcheck := $$(GOFLAGS= GOWORK=off $(GO) tool -modfile=$(CURDIR)/internal/tools/go.mod -n staticcheck)

# Lists every module that has packages. It does not use git, so that it also works in an unpacked archive.
modules := $(patsubst %/,%,$(dir $(shell find . -name go.mod -not -path './build/*' -not -path './internal/tools/*' \
	-not -path '*/testdata/*' -not -path '*/node_modules/*' | sort)))
# library: the library, its examples and the checkers of its proof. around: the modules that are installed beside the library, and
# the tests in a browser. In each list the slowest modules come first. Tests mostly wait, so two modules side by side finish sooner.
scenes := usersync seckill seckillstream
databases := sqlitetest wrappertest migratetest
library := . $(addprefix internal/integration/,$(databases)) examples proof/chaos bench compensatortest/sqlitetest internal/testservers/docker
around := internal/integration relay/rabbitmq $(addprefix examples/,$(scenes)) cmd/compensator cron relay/watermill orms/gormtx otel
at_once/. = $(shell echo $$((2 * $(PACKAGES_AT_ONCE)))) # this module has most of the packages
except = $$($(GO) list ./... | grep -v $(foreach package,$(1),-e '/$(package)$$'))
tests/examples := $(call except,$(scenes))
tests/internal/integration := $(call except,$(databases))
tests/proof/chaos := ./history/... ./check/... ./report/...
tests/bench := -short -skip '^Test(Bench|Scale|Order|Limits|Without|Fair|Fleet|Lease|Delay|Relay|Intake|Admin|Ready|Blocked|Waits|Operations)$$' ./...

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Checks that go.mod and go.sum are tidy. Some modules find the repository's other modules through a go.work, which go mod tidy
# does not read. For such a module, go mod tidy runs on a copy of go.mod that names their directories.
tidied = mkdir -p $(build) && cp $(1)/go.mod $(build)/tidy.mod && cp $(1)/go.sum $(build)/tidy.sum && \
	if [ -f $(1)/go.work ]; then $(GO) mod edit -replace github.com/compensator-go/compensator=$(CURDIR) \
		-replace github.com/compensator-go/compensator/compensatortest/sqlitetest=$(CURDIR)/compensatortest/sqlitetest $(build)/tidy.mod; fi && \
	(cd $(1) && GOWORK=off $(GO) mod tidy -diff -modfile=$(build)/tidy.mod)

side_by_side = @$(MAKE) --no-print-directory --keep-going --jobs 2 $(addprefix test/,$(1))

.PHONY: test
test: ## run the tests of the library and its examples against real servers, with the race detector
	$(call side_by_side,$(library))

.PHONY: test-around
test-around: ## run the tests of pages and examples in a browser, of relays, of telemetry and of the command
	$(call side_by_side,$(around))

# With RUNS=directory, the events of a module's tests go to a file in that directory. Failures also go to the terminal.
into = > >(mkdir -p $(dir $(1)) && tee $(1) | { grep -a '"Action":"fail"' || true; })

.PHONY: $(addprefix test/,$(library) $(around))
$(addprefix test/,$(library) $(around)): test/%:
	cd $* && $(go_test) $(if $(RUNS),-json) $(or $(tests/$*),./...) $(if $(RUNS),$(call into,$(abspath $(RUNS))/run-$(subst /,_,$*).json))

.PHONY: test-mysql
test-mysql: ## run the root module's tests on MySQL 9.7, fetched from Debian unstable
	internal/testservers/fetch-mysql.sh $(build)/mysql97
	COMPENSATOR_SERVERS=local COMPENSATOR_MYSQLD=$(build)/mysql97/mysqld $(go_test) ./...

.PHONY: test-engine
test-engine: ## run the store's suite and more on ENGINE=galera, group, tidb or vitess; as root, on Debian
	internal/engines/run $(ENGINE)

.PHONY: test-newest
test-newest: ## run the root module's tests with the newest go-redis and MySQL driver
	mkdir -p $(build)
	cp go.mod $(build)/newest.mod
	cp go.sum $(build)/newest.sum
	$(GO) get -t -modfile=$(build)/newest.mod ./... github.com/redis/go-redis/v9@latest github.com/go-sql-driver/mysql@latest
	$(go_test) -modfile=$(build)/newest.mod ./...

# Lists the packages that have files with the build tag $(1). The tag changes nothing in the other packages.
under = $(addprefix ./,$(sort $(dir $(shell grep -rl --include='*.go' '^//go:build $(1)$$' internal proof))))

# vet and staticcheck run with the compiler flags of make test, and with tags those of make crash, so that each package is compiled
# once.
.PHONY: check
check: ## format, vet and lint every module
	@for dir in $(filter-out $(library) $(around),$(modules:./%=%)); do \
		if find $$dir -name '*_test.go' | grep -q .; then echo "Makefile: no target tests $$dir"; exit 1; fi; \
	done
	@unformatted=$$(find . -name '*.go' -not -path './build/*' -exec gofmt -l {} +); \
		if [ -n "$$unformatted" ]; then echo "gofmt -w these:"; echo "$$unformatted"; exit 1; fi
	@for dir in $(modules); do \
		echo "check $$dir"; \
		(cd $$dir && export GOFLAGS="$${GOFLAGS:-} $(race)" && $(GO) vet ./... && $(staticcheck) ./...); \
		$(call tidied,$$dir); \
	done
	$(GO) vet -tags failpoints $(call under,failpoints) && $(staticcheck) -tags failpoints $(call under,failpoints)
	$(GO) vet -tags engines $(call under,engines) && $(staticcheck) -tags engines $(call under,engines)
	$(GO) test $(race) -vet=off -ldflags=-w -count=1 -run '^TestDocs' . ./internal/reference
	@$(MAKE) --no-print-directory prose

# The linter accepts some sentences that are still hard to read.
.PHONY: prose
prose: ## find long sentences and private phrases in Markdown and Go comments
	cd internal/tools && $(GO) run . ../.. $(build)/prose
	@vale=$$(cd internal/tools && GOFLAGS= GOWORK=off $(GO) tool -n vale); \
	run() { $$vale --no-global --no-exit --config internal/tools/vale/vale.ini --output line "$$@"; }; \
	{ run --glob '!{build,**/node_modules,**/testdata}/**' .; run $(build)/prose; } | sed 's#^$(build)/prose/##; s#[.]go[.]md:#.go:#' > $(build)/prose.txt; \
	! grep -v '^examples/orms/ent/' $(build)/prose.txt # ent generates that code

# This needs the network only if npm ci has not run yet.
.PHONY: docs
docs: docs/node_modules/.package-lock.json ## build the site of the documentation in docs/.vitepress/dist
	cd docs && npm run build

docs/node_modules/.package-lock.json: docs/package-lock.json
	cd docs && npm ci --ignore-scripts --no-audit --no-fund

.PHONY: relay
relay: ## kill a broker while MESSAGES=20000 are relayed to it, and half as many consumed from it
	cd relay/rabbitmq && $(go_test) -run WhileTheBrokerIsKilled -v . -messages=$(or $(MESSAGES),20000)

.PHONY: intake
intake: ## kill intakes with -9, KILLS=20 of them, while MESSAGES=100000 flow from a Redis Stream into the log
	$(go_test) -run TestNoMessageIsLostOrDoubledWhileIntakesAreKilled -v ./intake -messages=$(or $(MESSAGES),100000) -kills=$(or $(KILLS),20)

.PHONY: demo
demo: ## run a shop on SQLite, kill it with -9 and check its orders; half a minute, needs only Go
	$(GO) run -C examples ./quickstart

.PHONY: ui
ui: ## open the operator's pages on a shop with failures; needs no server, prints a token; LISTEN=127.0.0.1:7070 ENTRIES=10000
	$(GO) build -C internal/integration -o $(build)/ui-demo ./uitest/demo
	exec $(build)/ui-demo -listen $(or $(LISTEN),127.0.0.1:7070) -entries $(or $(ENTRIES),0)

.PHONY: usersync
usersync: ## sync USERS=2500 users while instances are killed KILLS=3 times, beside the same without the library; SEED=1 WHEEL=1
	$(GO) test -C examples -count=1 -timeout 30m -run '^TestScene$$' -v ./usersync -yours -full \
		-users $(or $(USERS),2500) -kills $(or $(KILLS),3) -seed $(or $(SEED),1) $(if $(WHEEL),-wheel) \
		-per-batch 50 -rate 100 -delay 10s -again 5s -most 4 -limit 2s -workers 16 -lease 5s $(USERSYNC)

.PHONY: seckill
seckill: ## sell STOCK=500 pieces to BUYERS=5000 at once under KILLS=3 and other faults, beside the same without the library; SEED=1
	$(GO) test -C examples -count=1 -timeout 30m -run '^TestSale$$' -v ./seckill -yours -full \
		-buyers $(or $(BUYERS),5000) -stock $(or $(STOCK),500) -kills $(or $(KILLS),3) -seed $(or $(SEED),1) \
		-span 30s -window 5s -resend 1s -most 5 -gather 200ms -abandon 5s -lease 5s $(SECKILL)

.PHONY: seckillstream
seckillstream: ## the same sale through a Redis Stream; BUYERS=5000 STOCK=500 KILLS=3 SEED=1
	$(GO) test -C examples -count=1 -timeout 30m -run '^TestSale$$' -v ./seckillstream -yours -full \
		-buyers $(or $(BUYERS),5000) -stock $(or $(STOCK),500) -kills $(or $(KILLS),3) -seed $(or $(SEED),1) \
		-span 30s -window 5s -resend 1s -most 5 -lease 5s $(SECKILLSTREAM)

.PHONY: bench-seckill
bench-seckill: ## measure the sale's purchases a second beside the same service without the log, in pairs, and refusals
	$(GO) test -C examples -run '^$$' -bench '^BenchmarkSale$$' -benchtime 1x -timeout 30m ./seckill

.PHONY: bench
bench: ## measure the library beside the floors and other libraries, an hour; QUICK=1: the floors, in a minute; SIZE=0.25: a quarter of the work; PAIRS=10
	cd bench && $(GO) test -count=1 -timeout 12h -run '^TestBench$$' -v . $(if $(QUICK),-quick) $(if $(SIZE),-size=$(SIZE)) $(if $(PAIRS),-pairs=$(PAIRS))

.PHONY: bench-sqlite
bench-sqlite: ## measure how soon outcomes of a backlog are stored on SQLite, and how long a service's own transactions take beside it
	$(GO) test -C internal/integration -run '^$$' -bench '^BenchmarkOutcomesOfABacklog$$' -benchtime 1x -count $(or $(TIMES),3) ./sqlitetest

.PHONY: bench-delay
bench-delay: ## measure mechanisms for delayed work side by side; build/delay.md and .svg
	cd bench && $(GO) test -count=1 -timeout 1h -run '^TestDelay$$' -v ./delay

.PHONY: bench-relay
bench-relay: ## measure the relays to RabbitMQ beside bare amqp091 and watermill's forwarder, and how many messages arrive twice after kills; build/relay.json
	cd bench && $(GO) test -count=1 -timeout 1h -run '^TestRelay$$' -v .

.PHONY: bench-intake
bench-intake: ## measure the intake from a Redis Stream beside a hand-written loop; build/intake.json
	cd bench && $(GO) test -count=1 -timeout 1h -run '^TestIntake$$' -v .

.PHONY: bench-gorm
bench-gorm: ## measure how late an entry starts if it was recorded as in a GORM tutorial, without Connector and Committed
	cd orms/gormtx && $(GO) test -count=1 -run '^$$' -bench '^BenchmarkTutorialStart$$' -benchtime 100x .

.PHONY: bench-ready
bench-ready: ## count how often a process is ready within its deadline while Redis is silent, a minute
	cd bench && $(GO) test -count=1 -timeout 10m -run '^TestReady$$' -v .

.PHONY: bench-blocked
bench-blocked: ## count the sessions of four processes while a server blocks them for SECONDS=90, a quarter of an hour; ONLY=connector
	cd bench && $(GO) test -count=1 -timeout 2h -run '^TestBlocked$$' -v ./blocked -seconds=$(or $(SECONDS),90) $(if $(ONLY),-only="$(ONLY)")

.PHONY: bench-order
bench-order: ## measure what the order of serial types costs: a backlog of 40 keys beside one without order, and calls of 20 ms, a minute; build/order.json
	cd bench && $(GO) test -count=1 -timeout 30m -run '^TestOrder$$' -v .

.PHONY: bench-limits
bench-limits: ## measure what a limit costs: 400 entries at 20/s over two processes, and a backlog of 1,000 keys, also with a prototype of fair turns; some minutes; PAIRS=3; build/limits.json
	cd bench && $(GO) test -count=1 -timeout 30m -run '^Test(Limits|Fair)$$' -v . $(if $(PAIRS),-pairs=$(PAIRS))

usual_features := limits,waiting,transactional
.PHONY: bench-without
bench-without: names = $(or $(NAME),$(usual_features))
bench-without: ## measure what features cost programs that do not use them, beside a build without them; NAME=limits,waiting,transactional PART=record,sustained,drain SIZE=0.6 PAIRS=10; build/without.json
	mkdir -p $(build)
	$(GO) run ./proof/without -name $(names) -overlay $(build)/without-overlay.json
	$(GO) test -C bench -c -overlay $(build)/without-overlay.json -o $(build)/bench-without.test .
	$(GO) test -C bench -count=1 -timeout 1h -run '^TestWithout$$' -v . -without $(build)/bench-without.test -out $(build)/without.json -pairs=$(or $(PAIRS),10) $(if $(SIZE),-size=$(SIZE)) $(if $(PART),-only=$(PART))

.PHONY: bench-operations
bench-operations: ## measure what everything of Operations costs entries that succeed, beside the same program without it; PART=record,sustained,drain SIZE=0.6 PAIRS=10; build/operations.json
	$(GO) test -C bench -count=1 -timeout 1h -run '^TestOperations$$' -v . -out $(build)/operations.json -pairs=$(or $(PAIRS),10) $(if $(SIZE),-size=$(SIZE)) $(if $(PART),-only=$(PART))

.PHONY: bench-wait
bench-wait: ## measure how soon Wait returns, with Redis and without, here and in another process, three minutes; build/waits.json
	cd bench && $(GO) test -count=1 -timeout 30m -run '^TestWaits$$' -v . $(if $(SIZE),-size=$(SIZE))

.PHONY: bench-lease
bench-lease: ## measure claims that write one lease row, fused commits, and a VARCHAR ended_by, beside today's statements; PART=drain,fused,varchar,sustained,log,bytes,calm,size,crowd,snapshot; build/lease.json
	cd bench && $(GO) test -count=1 -timeout 1h -run '^TestLease$$' -v . $(if $(SIZE),-size=$(SIZE)) $(if $(PAIRS),-pairs=$(PAIRS)) $(if $(PART),-only=$(PART))

.PHONY: bench-scale
bench-scale: ## measure what growth to MOST waiting entries costs (10000000), and recovery
	cd bench && $(GO) test -count=1 -timeout 2h -run '^TestScale$$' -v . $(if $(MOST),-most=$(MOST))

.PHONY: bench-fleet
bench-fleet: ## measure what up to 100 instances with up to 40 types send to the servers each second, at rest and under 1,000 entries/s, five minutes; build/fleet.json
	cd bench && $(GO) test -count=1 -timeout 30m -run '^TestFleet$$' -v .

.PHONY: bench-admin
bench-admin: ## measure the operator's pages on MOST=10000000 ended entries, and what they cost the log, a quarter of an hour; PART=pages,viewers,producers,browser,idle,pairs,deaths,attempts
	cd bench && $(GO) test -count=1 -timeout 2h -run '^TestAdmin$$' -v . -pairs=$(or $(PAIRS),10) $(if $(MOST),-most=$(MOST)) $(if $(PART),-part=$(PART))

# make test runs the seeds in proof/sim/testdata/seeds.txt, which have found faults. make sim runs random ones.
.PHONY: sim
sim: seeds := $(or $(SEEDS),10000)
sim: from := $(or $(FROM),$(shell od -An -N5 -tu8 /dev/urandom | tr -d ' '))
sim: ## simulate several instances with random seeds; SEEDS=10000 FROM=1
	@echo "the same seeds again: make sim SEEDS=$(seeds) FROM=$(from)"
	$(GO) test ./proof/sim -count=1 -timeout 60m -skip '^TestRegressionSeeds$$' -seeds=$(seeds) -from=$(from)

.PHONY: without
without: ## take out each feature below internal/features, then all, and check that the library still builds and works; NAME=pause
	$(GO) run ./proof/without $(if $(NAME),-name $(NAME))

.PHONY: model
model: ## check the model of the protocol, and its mutants; needs spin and gcc
	proof/model/run

.PHONY: crash
crash: ## kill processes at every step of the code, on real servers; KILLS=20 at each
	$(GO) test -tags failpoints -count=1 ./internal/failpoint
	$(memory) $(GO) test -tags failpoints -count=1 -parallel 6 -timeout 60m ./proof/crashmatrix -kills=$(or $(KILLS),20)

.PHONY: chaos
chaos: ## make faults in real servers and processes, and check the history; DURATION=1m SEED=1
	cd proof/chaos && $(GO) test -count=1 -timeout 24h -skip '^TestSoak$$' -v . \
		-chaos.duration=$(or $(DURATION),1m) -chaos.seed=$(or $(SEED),1) $(CHAOS)

.PHONY: limits
limits: ## kill and stop processes and servers, and check that limits hold over all processes; DURATION=10m SEED=1
	$(GO) test -count=1 -timeout 24h -run '^TestLimitsHoldWhileProcessesAndServersFail$$' -v ./promises/limits \
		-faults=$(or $(DURATION),10m) -faults-seed=$(or $(SEED),1)

.PHONY: soak
soak: ## measure the resources of services during long load; report in build/soak; DURATION=30m
	cd proof/chaos && $(GO) test -count=1 -timeout 0 -run '^TestSoak$$' -v . -soak.duration=$(or $(DURATION),30m)

.PHONY: mutants
mutants: ## break the library in every known way and require that the named tests fail; LAYER=unit
	$(GO) run ./proof/mutants -baseline -all $(if $(LAYER),-layer $(LAYER))

.PHONY: mutant
mutant: ## break the library in one way; NAME=settle-without-fence
	$(GO) run ./proof/mutants -name $(NAME) $(if $(LAYER),-layer $(LAYER))

.PHONY: traces
traces: ## write every decision of 200 simulated seeds, and what the suites' scenarios send, to TRACES=build/traces/now, and compare with BEFORE
	rm -rf $(traces)
	$(GO) test ./proof/sim -count=1 -timeout 30m -run '^TestRecordWalks$$' -walks=$(traces)/decisions
	$(memory) $(GO) test ./proof/traces -count=1 -timeout 30m -run '^TestRecordTraces$$' -v -traces=$(traces) | grep -E '^ +record_test|FAIL'
	$(if $(BEFORE),$(GO) run ./proof/traces $(if $(RENAMED),-renamed $(RENAMED)) $(BEFORE) $(traces))
traces: traces = $(abspath $(or $(TRACES),$(build)/traces/now))

.PHONY: testnames
testnames: ## record the names of all tests in RECORD=build/testnames/names.txt, with the subtests of RUNS=directory, and compare them with BEFORE=file
	$(GO) run ./proof/testnames -record $(or $(RECORD),build/testnames/names.txt) $(if $(TREE),-tree $(TREE)) $(if $(RUNS),'$(RUNS)/*.json')
	$(if $(BEFORE),$(GO) run ./proof/testnames -compare $(BEFORE) $(or $(RECORD),build/testnames/names.txt))

.PHONY: fuzz
fuzz: ## run every fuzz target in turn; FUZZTIME=30s each
	internal/tools/fuzz.sh $(or $(FUZZTIME),30s)

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf $(build)
