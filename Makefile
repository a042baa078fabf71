# The one list of commands; continuous integration calls the same ones.
# `make demo` and `make test` each work first thing on a fresh clone with Rust, Python >= 3.10 and Node present.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
PYTHON ?= python3
RUST_SOURCES := $(shell git ls-files -co --exclude-standard '*.rs' '*.sql' '*.proto' 'Cargo.toml' '*/Cargo.toml' Cargo.lock rust-toolchain.toml)
PYTHON_BUILD := bindings-python/pyproject.toml bindings-python/requirements-dev.txt tests/openapi/requirements.txt toolkit/tests/mcp/reference/requirements.txt
NODE := bindings-node
NODE_LTS := 26
MCP_SERVERS := toolkit/tests/mcp/reference
EXTERNAL_AGENTS := toolkit/tests/external/reference
NODE_PLATFORM = $(shell node -p 'const r = process.report?.getReport().header; process.platform + "-" + process.arch + (process.platform !== "linux" ? "" : r?.glibcVersionRuntime ? "-gnu" : "-musl")')
WEB := web
# The package for other people's front ends. The console is built from its sources too.
REACT := react
# What the console is built into: a server that is built afterwards holds it.
CONSOLE := server/console/index.html
WEB_SOURCES := $(shell git ls-files -co --exclude-standard $(WEB)/src $(WEB)/public $(REACT)/src) $(addprefix $(WEB)/,index.html package-lock.json vite.config.ts)
NODE_BUILD := $(NODE)/package-lock.json $(NODE)/tsconfig.json $(wildcard $(NODE)/ts/*.ts $(NODE)/ts/*/*.ts $(NODE)/scripts/*.mjs)
FEATURES := --workspace --exclude flovyn-python --exclude flovyn-node
# With these the packages that are built for tests, and the doc tests, share what the tests of Rust were built from.
SHARED := --features flovyn-cli/as-tested

.PHONY: help compiler screenshots node-suites setup demo test test-long simulate format lint fmt bench bench-instructions bench-server package packages version docs gen clean rust-build rust-test rust-test-to-f rust-test-from-g peers native python-test views evaluation openapi examples readme reference tidy web web-test react-test node node-test node-lts scenarios lives budgets kills build-python system

help: ## Show the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# ── set up ───────────────────────────────────────────────────────────────────────────────────────────────────────────

compiler:
	@command -v cc >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq build-essential; }

$(VENV)/.tools: $(PYTHON_BUILD) | compiler
	@echo "==> Python tools into $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed; found $$($(PYTHON) --version)"; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet -r bindings-python/requirements-dev.txt -r tests/openapi/requirements.txt \
	  -r $(MCP_SERVERS)/requirements.txt
	@touch $@

$(VENV)/.flovyn: $(VENV)/.tools $(RUST_SOURCES) $(CONSOLE) bindings-python/pyproject.toml
	@echo "==> building the Python package"
	@cd bindings-python && VIRTUAL_ENV=$(CURDIR)/$(VENV) PATH=$(BIN):$$PATH $(BIN)/maturin develop --quiet $(SHARED) >/dev/null
	@touch $@

build-python: $(VENV)/.flovyn

$(NODE)/node_modules/.installed: $(NODE)/package-lock.json
	@echo "==> Node tools into $(NODE)/node_modules"
	@node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' || { echo "Node 20 or newer is needed; found $$(node --version)"; exit 1; }
	@cd $(NODE) && npm ci --silent
	@touch $@

# The public reference servers of MCP, which the tests of its client talk to.
$(MCP_SERVERS)/node_modules/.installed: $(MCP_SERVERS)/package-lock.json
	@echo "==> MCP servers into $(MCP_SERVERS)/node_modules"
	@cd $(MCP_SERVERS) && npm ci --silent
	@touch $@

# The newest Node with long-term support. Published external agents need it too.
target/node-lts/.installed-$(NODE_LTS):
	@echo "==> Node $(NODE_LTS) into target/node-lts"
	@npm install --silent --no-audit --no-fund --prefix $(@D) node@$(NODE_LTS)
	@touch $@

$(EXTERNAL_AGENTS)/node_modules/.installed: $(EXTERNAL_AGENTS)/package-lock.json target/node-lts/.installed-$(NODE_LTS)
	@echo "==> external agents into $(EXTERNAL_AGENTS)/node_modules"
	@cd $(EXTERNAL_AGENTS) && npm ci --silent
	@touch $@

# An agent of the types of the protocol's own crate, in a workspace of its own.
target/acp-agent/debug/acp-agent: $(wildcard $(EXTERNAL_AGENTS)/acp-agent/Cargo.* $(EXTERNAL_AGENTS)/acp-agent/src/*)
	@echo "==> an ACP agent into target/acp-agent"
	@cargo build --quiet --locked --manifest-path $(EXTERNAL_AGENTS)/acp-agent/Cargo.toml --target-dir target/acp-agent
	@touch $@

$(NODE)/native/.built: $(RUST_SOURCES) $(CONSOLE)
	@echo "==> building the Node addon"
	@cargo build --quiet -p flovyn-node $(SHARED)
	@mkdir -p $(NODE)/native
	@cp $${CARGO_TARGET_DIR:-target}/debug/libflovyn_node.$$([ "$$(uname)" = Darwin ] && echo dylib || echo so) $(NODE)/native/.new
	@mv $(NODE)/native/.new $(NODE)/native/flovyn.$(NODE_PLATFORM).node
	@touch $@

$(NODE)/dist/.built: $(NODE)/node_modules/.installed $(NODE)/native/.built $(NODE_BUILD)
	@cd $(NODE) && npm run --silent build
	@touch $@

node: $(NODE)/dist/.built ## Build the Node package

$(WEB)/node_modules/.installed: $(WEB)/package-lock.json
	@echo "==> console tools into $(WEB)/node_modules"
	@cd $(WEB) && npm ci --silent
	@touch $@

$(REACT)/node_modules/.installed: $(REACT)/package-lock.json
	@echo "==> tools of the React package into $(REACT)/node_modules"
	@cd $(REACT) && npm ci --silent
	@touch $@

$(CONSOLE): $(WEB)/node_modules/.installed $(WEB_SOURCES)
	@echo "==> building the console"
	@cd $(WEB) && npm run --silent build -- --logLevel warn

web: $(CONSOLE) ## Build the console; servers that are built afterwards hold it

# What the tests start themselves: PostgreSQL, a pooler before it, NATS, a sandbox for the commands of the host tools,
# tmux for the chat, a browser for the console and processes with a wrong clock. apt-get runs alone on a machine, so one target
# installs all of it, after the compiler.
#
# `make setup` is the target that installs. The suites depend on what it installs all the same: `make test` has to work first
# thing on a bare machine, where continuous integration calls nothing else. Where all is there, nothing is installed.
system: | compiler
	@missing=(); \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql); \
	command -v nats-server >/dev/null || [ -x /usr/sbin/nats-server ] || missing+=(nats-server); \
	command -v bwrap >/dev/null || missing+=(bubblewrap); \
	command -v tmux >/dev/null || missing+=(tmux); \
	command -v chromium >/dev/null || missing+=(chromium); \
	command -v faketime >/dev/null || missing+=(faketime); \
	command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || missing+=(pgbouncer); \
	[ $${#missing[@]} = 0 ] && exit; \
	echo "==> installing $${missing[*]}"; \
	{ [ "$$(id -u)" = 0 ] && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 "$${missing[@]}" >/dev/null; } \
	  || { echo "The tests need what is not here: apt-get install $${missing[*]}"; exit 1; }

setup: system $(VENV)/.flovyn $(NODE)/dist/.built peers ## Install what a fresh machine needs and build the packages

# ── use ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

demo: $(VENV)/.flovyn ## Run an agent, kill it in the middle, see it go on
	@$(BIN)/python examples/demo/demo.py

# ── check ────────────────────────────────────────────────────────────────────────────────────────────────────────────

# Two targets beside each other; the failure of either fails both. By the shell: `make -j` may leave one until the other has ended.
define beside
@$(MAKE) --no-print-directory $(1) & other=$$!; failed=0; \
	$(MAKE) --no-print-directory $(2) || failed=$$?; wait $$other || failed=$$?; exit $$failed
endef

# Clippy compiles our crates as it looks at them: what `make lint` checks needs no compilation of its own here. The same for
# `make simulate`, which then takes what `make test` has compiled.
test simulate: export RUSTC_WORKSPACE_WRAPPER = clippy-driver
test simulate: export CLIPPY_ARGS = -D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
# The suites of Rust ask cargo first, since what others install for them is there by then; the native parts of the packages are
# compiled beside them.
test: compiler ## Lint, tidy and every suite
	$(call beside,format system peers,rust-build)
	$(call beside,rust-test,packages)
	$(call beside,web-test react-test,python-test node-suites)
	$(call beside,scenarios readme,lives budgets kills views)
	$(call beside,reference examples,evaluation openapi)
	@echo "==> all suites passed"

format: $(VENV)/.tools
	@echo "==> format"
	@cargo fmt --all --check
	@$(BIN)/ruff format --check --quiet bindings-python examples benches tests packages web/tests
	@$(BIN)/ruff check --quiet bindings-python examples benches tests packages web/tests

lint: format ## Format and clippy: look at the sources without running anything
	@echo "==> lint"
	@cargo clippy --workspace --all-targets --features flovyn-core/testing --quiet -- -D warnings

tidy: ## Look whether the repository keeps its own rules: layers, sizes, names, pages, paths
	@echo "==> tidy"
	@cargo test $(FEATURES) --features flovyn-core/testing --quiet --test tidy

# The unit tests first: those of the core take the longest, and cargo would leave them to the end, where nothing is beside them.
rust-build: $(CONSOLE) | compiler
	@echo "==> building the Rust suites"
	@cargo test $(FEATURES) --features flovyn-core/testing --quiet --no-run --lib
	@cargo test $(FEATURES) --features flovyn-core/testing --quiet --no-run

# Many suites wait more than they compute, so two of them run at a time.
# Published MCP servers and agents that the suites of Rust run.
peers: $(MCP_SERVERS)/node_modules/.installed $(EXTERNAL_AGENTS)/node_modules/.installed target/acp-agent/debug/acp-agent

rust-test: system peers
	@echo "==> Rust suites"
	$(call beside,rust-test-to-f,rust-test-from-g)

rust-test-to-f:
	@cargo test $(FEATURES) --features flovyn-core/testing --quiet --lib --bins --examples --test '[a-f]*'

rust-test-from-g:
	@cargo test $(FEATURES) --features flovyn-core/testing --quiet --test '[g-z]*'
	@cargo test $(FEATURES) $(SHARED) --quiet --doc

# Much of a test is waiting: three processes fill two cores, beside the browser's suites too.
python-test: $(VENV)/.flovyn
	@echo "==> Python suites"
	@cd bindings-python && $(BIN)/pyright --project pyproject.toml
	@cd bindings-python && $(BIN)/python -m pytest -q -n 3 --dist loadfile tests

node-test: system $(NODE)/dist/.built
	@echo "==> TypeScript suites"
	@cd $(NODE) && npm run --silent check && npm test --silent

node-suites:
	@$(MAKE) --no-print-directory node-test node-lts

# The types of the REST API are made of what the server says of itself; then the console, by itself and in a browser against a
# server and workers that are killed.
web-test: system $(VENV)/.flovyn
	@echo "==> console suites"
	@mkdir -p target
	@$(BIN)/python tests/openapi/document.py >target/openapi.json
	@cd $(WEB) && npm run --silent api -- ../target/openapi.json && npm run --silent check && npm test --silent
	@cd $(WEB) && FLOVYN_BIN=$(BIN)/flovyn FLOVYN_PYTHON=$(BIN)/python npm run --silent e2e

# Hooks and chat against a server that is killed; then the package in an empty project, as others install it.
react-test: $(VENV)/.flovyn $(REACT)/node_modules/.installed
	@echo "==> suites of the React package"
	@cd $(REACT) && npm run --silent check
	@cd $(REACT) && FLOVYN_BIN=$(BIN)/flovyn FLOVYN_PYTHON=$(BIN)/python npm test --silent
	@cd $(REACT) && npm run --silent prove

# What touches the addon, again on the newest Node with long-term support.
LTS_SUITES := agents aliases calls cancels durable ends families inline kill recipes retry shared threads toolkit values

node-lts: system $(NODE)/dist/.built target/node-lts/.installed-$(NODE_LTS)
	@echo "==> TypeScript suites on Node $(NODE_LTS)"
	@cd $(NODE) && PATH=$(CURDIR)/target/node-lts/node_modules/.bin:$$PATH npx vitest run $(LTS_SUITES:%=tests/%.test.ts)

scenarios: system $(VENV)/.flovyn $(NODE)/dist/.built
	@echo "==> one truth in every language"
	@$(BIN)/python tests/scenarios/run.py

lives: $(VENV)/.flovyn $(NODE)/dist/.built rust-build ## Kill random agents in three languages
	@echo "==> random agents live and die in every language"
	@$(BIN)/python tests/lives/run.py

budgets: $(VENV)/.flovyn ## Kill families on a budget, and compare their books with what the model was paid
	@echo "==> budgets of families hold under kills"
	@$(BIN)/python tests/budgets/run.py --families 10

kills: system $(VENV)/.flovyn ## Kill servers, workers and machines under families of agents
	@echo "==> families survive kills of servers, workers and machines"
	@$(BIN)/python tests/kills/run.py --kills 10

views: $(VENV)/.flovyn $(NODE)/dist/.built
	@echo "==> a run is shown alike everywhere"
	@$(BIN)/python tests/views/run.py

evaluation: $(VENV)/.flovyn ## Sixty bugs mended by flovyn chat under kills; MODEL=provider/model asks a real one
	@echo "==> sixty bugs are mended under kills"
	@$(BIN)/python tests/evaluation/run.py $(if $(MODEL),--model $(MODEL))

openapi: $(VENV)/.flovyn
	@echo "==> the server keeps its OpenAPI document"
	@$(BIN)/python tests/openapi/run.py

readme: $(VENV)/.flovyn $(NODE)/dist/.built
	@echo "==> the README's own programs"
	@$(BIN)/python tests/readme/run.py

examples: $(VENV)/.flovyn $(NODE)/dist/.built
	@echo "==> examples and demo"
	@$(BIN)/python examples/run_all.py

test-long: system $(VENV)/.flovyn ## The big figures: SCALE=n multiplies every suite
	@SCALE=$${SCALE:-20} cargo test $(FEATURES) --features flovyn-core/testing --release -- --include-ignored
	@cd bindings-python && SCALE=$${SCALE:-20} $(BIN)/python -m pytest -q tests
	@$(BIN)/python tests/budgets/run.py --families $$((50 * $${SCALE:-20}))
	@$(BIN)/python tests/kills/run.py --kills $$((5 * $${SCALE:-20}))

# What is driven by seeds, in the order from a machine in memory to whole processes: random agents on the pure machine, on the
# re-entry harness, random histories against the reference, hostile bytes, servers on a simulated network, kill loops.
# A failure names its seed. `tests/lives` takes seeds from SEED on, the others run SEED alone or begin there.
simulate: system $(VENV)/.flovyn $(NODE)/dist/.built rust-build ## Simulations and kill loops: SCALE=n multiplies, SEED=n repeats one
	@echo "==> random agents on the machine"
	@cargo test $(FEATURES) --features flovyn-core/testing --quiet --lib journal::tests
	@echo "==> crash sweeps, random histories, hostile bytes, simulated networks, kill loops"
	@cargo test $(FEATURES) --features flovyn-core/testing --quiet --test reentry --test conformance_sqlite --test conformance_postgres \
	  --test hostile --test simulation --test long --test storm
	@echo "==> kill loops in Python and TypeScript"
	@cd bindings-python && $(BIN)/python -m pytest -q tests/test_kill.py tests/test_random.py
	@cd $(NODE) && npx vitest run tests/kill.test.ts tests/cancels.test.ts
	@echo "==> lives of random agents"
	@$(BIN)/python tests/lives/run.py --programs $$((720 * $${SCALE:-1})) --first $${SEED:-0}

fmt: $(VENV)/.tools ## Format everything
	@cargo fmt --all
	@$(BIN)/ruff format --quiet bindings-python examples benches tests packages web/tests
	@$(BIN)/ruff check --quiet --fix bindings-python examples benches tests packages web/tests

# ── measure, ship, document ──────────────────────────────────────────────────────────────────────────────────────────

screenshots: system $(VENV)/.flovyn $(WEB)/node_modules/.installed ## Draw the chat into docs/screenshots and the console into target/screenshots
	@FLOVYN_SCREENSHOTS=$(CURDIR)/docs/screenshots cargo test --quiet -p flovyn-cli --features as-tested --test chat -- \
		draws_the_pictures
	@cd $(WEB) && SCREENSHOTS=$(CURDIR)/target/screenshots FLOVYN_BIN=$(BIN)/flovyn FLOVYN_PYTHON=$(BIN)/python npm run --silent e2e
	@echo "==> docs/screenshots target/screenshots"

bench: $(VENV)/.tools ## Measure us, the peers and the storage floor; writes benches/RESULTS.md
	@$(PYTHON) benches/run.py

bench-instructions: ## Count the instructions of one step in Rust, by callgrind
	@cargo build --quiet --release -p flovyn-benches
	@$(PYTHON) benches/instructions.py

bench-server: system ## Measure on PostgreSQL and through servers; writes benches/RESULTS-SERVER.md
	@$(PYTHON) benches/run.py --server

package: $(VENV)/.tools $(CONSOLE) $(NODE)/dist/.built $(REACT)/node_modules/.installed ## Build wheel, sdist, npm tarballs and crates into dist/ and try each in an empty environment
	@$(BIN)/python packages/build.py
	@$(BIN)/python packages/prove.py

# The same with native parts that are quick to build. `make test` does it beside suites that wait for much of their time.
native: $(VENV)/.flovyn $(NODE)/dist/.built $(REACT)/node_modules/.installed

packages:
	@nice -n 19 $(MAKE) --no-print-directory native
	@echo "==> packages in empty environments"
	@nice -n 19 $(BIN)/python packages/build.py --profile dev
	@nice -n 19 $(BIN)/python packages/prove.py

version: ## Show the version; V=0.2.0 writes another one everywhere
	@$(PYTHON) packages/version.py $(V)

gen: ## Write generated files
	@cargo run --quiet -p flovyn-tests --bin gen

docs: reference ## Build the API references: Rust into target/doc, Python and TypeScript into dist/docs
	@echo "==> API references of all crates into target/doc"
	@cargo doc --no-deps $(FEATURES)

# From the sources; a name without a home fails it.
reference: $(VENV)/.flovyn $(NODE)/dist/.built
	@echo "==> API references into dist/docs"
	@mkdir -p dist/docs
	@$(BIN)/python -m pdoc --output-directory dist/docs/python flovyn flovyn.testing flovyn.toolkit
	@cd $(NODE) && npx typedoc --logLevel Warn
	@RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --quiet -p flovyn-core
	@$(BIN)/python scripts/public-types

clean: ## Remove what was built
	@rm -rf target $(VENV) dist $(WEB)/node_modules server/console/assets server/console/index.html $(addprefix $(NODE)/,node_modules native dist esm .examples) \
	  $(addprefix $(REACT)/,node_modules dist LICENSE)
