# A thin front door; anything with logic lives in scripts/ or in `cargo xtask`.
.DEFAULT_GOAL := help
LISTEN ?= 127.0.0.1:8080
POLICIES ?= examples/policies.yaml
# The catalog of `make run`; remove it and its copy (`target/dev.db*`) to begin again.
CATALOG ?= target/dev.db
CARGO ?= cargo

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

.PHONY: run
run: toolchain ## Start a server on LISTEN (127.0.0.1:8080) with a console; a new CATALOG begins with POLICIES
	@scripts/console --beside
	$(CARGO) run --profile fast --no-default-features --bin sluicegate -- serve --config examples/run.toml --catalog sqlite:$(CATALOG) --seed $(POLICIES) --listen $(LISTEN)

.PHONY: console
console: ## Build the admin console, which the program then carries
	scripts/console

.PHONY: release
release: toolchain ## Build the program with link-time optimisation: target/release/sluicegate (minutes more)
	$(CARGO) build --release --bin sluicegate

.PHONY: check
check: toolchain ## Check what changed within two minutes: format, rules, lints and short tests of the crates with changes
	scripts/check

.PHONY: test
test: deps ## Run every test
	scripts/test

.PHONY: lint
lint: deps ## Check format, lints, pages, documentation and licences
	scripts/lint

.PHONY: docs
docs: toolchain ## Build the book in target/book, with mdBook, and check its links (minutes the first time)
	scripts/docs

.PHONY: walk
walk: toolchain ## Do what the pages show: run their commands in a clean clone, check their policies and configurations
	scripts/test-readme

.PHONY: console-test
console-test: deps ## Test the admin console in a browser
	scripts/console-test

.PHONY: sdks
sdks: ## Test all SDKs, and that they and servers agree on one Redis
	scripts/deps --sdk
	scripts/sdk

.PHONY: sdk-go sdk-java sdk-php
sdk-go: ## Test the SDK for Go
sdk-java: ## Test the SDK for Java
sdk-php: ## Test the SDK for PHP
sdk-go sdk-java sdk-php: sdk-%:
	sdk/$*/scripts/deps
	scripts/sdk $*

.PHONY: packages
packages: ## Make the packages of the SDKs in target/packages, and use each from an empty project
	scripts/deps --sdk
	scripts/packages

.PHONY: packages-server
packages-server: release sbom ## Make the server's packages in target/packages/server (deb, archive, image), and test what is in deploy/
	scripts/deps --packages
	scripts/packages-server

.PHONY: packages-crates
packages-crates: deps ## Package the crates, and install the program from the packages alone (minutes)
	scripts/package-crates

.PHONY: advisories
advisories: deps ## Compare the dependencies with the RustSec advisories (needs GitHub)
	scripts/advisories

.PHONY: sbom
sbom: toolchain ## Write what the program is made of to target/sluicegate.cdx.json (CycloneDX)
	scripts/sbom

.PHONY: fuzz
fuzz: toolchain ## Fuzz every parser for a minute each
	scripts/fuzz

.PHONY: matrix
matrix: deps ## Run the tests that need a Redis on Redis 6.2, Redis 8 and Valkey 8
	scripts/deps --sdk
	scripts/matrix

.PHONY: nightly
nightly: deps ## Run what CI leaves out: new histories, rounds of real servers, planted faults, samples of mutants, other servers, longer fuzzing, the book, packages of crates
	scripts/night

.PHONY: deps
deps: ## Install what the tests need, or say what to install
	scripts/deps

.PHONY: toolchain
toolchain:
	@scripts/deps --toolchain

.PHONY: bench
bench: toolchain ## Measure against the peers and print the ratios
	$(CARGO) run --release --package sluicegate-bench

.PHONY: bench-memory
bench-memory: toolchain ## Measure ten million keys in memory beside governor (minutes, 3 GB)
	$(CARGO) run --release --package sluicegate-bench --bin memory

.PHONY: vectors
vectors: toolchain ## Write the expected decisions of spec/vectors anew
	$(CARGO) xtask vectors

.PHONY: soak
soak: toolchain ## Run 10^9 decisions of one limiter and compare the rate; 10^7 steps of kernel and Lua, and as many of leases (minutes)
	$(CARGO) run --release --package xtask -- soak
	SLUICEGATE_STEPS=2500000 $(CARGO) test --release --package sluicegate-store --features redis --test it redis_script::differential
	SLUICEGATE_STEPS=3000000 $(CARGO) test --release --package sluicegate-store --features redis --test it redis_script::leases
