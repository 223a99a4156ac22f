# Short recipes for people and for .ci/run; `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The image that `make image` makes and `make install` runs.
IMAGE ?= localhost/swansong:dev
# What `make install` applies: base, overlays/cert-manager, overlays/strict, or a folder of your own below manifests/.
OVERLAY ?= base
# What `make install-agent` applies: agent, overlays/agent-mindcluster, overlays/agent-preload-check,
# overlays/agent-mindcluster-preload-check, overlays/agent-faults, overlays/agent-gateway, or your own.
AGENT ?= agent
KUBECTL ?= kubectl
# What the driver's libraries need of the C library, and the program itself doesn't.
DRIVER_NEEDS := libdl.so.2 libm.so.6 libpthread.so.0 librt.so.1

DENY_VERSION := 0.20.2
CACHE := $(or $(SWANSONG_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/swansong)
DENY := $(CACHE)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
ADVISORIES := https://github.com/rustsec/advisory-db
PREREQUISITES := tests/support/cluster/prerequisites.sh
WITH_KUBERNETES := tests/support/cluster/with-kubernetes.sh
# Without root there is no node, and what only a node needs isn't built.
TIER := $(if $(filter 0,$(shell id -u)),node,api)
# Targets whose names begin with e2e need a cluster.
UNIT := --lib --bins --test '[!e]*'
E2E := --test 'e*'
TESTCLUSTER := cargo run --quiet --locked --package swansong-testcluster --

.PHONY: help
help: ## List what can be made.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## See a job with one annotation save its checkpoint when a device fails, on a real Kubernetes on this machine; DEMO=quick: only the injection.
	@$(PREREQUISITES) node demo
	@$(WITH_KUBERNETES) node cargo build --locked --package swansong --package swansong-demo --package swansong-testcluster --bin swansong --bin demo --bin testcluster
	@"$${CARGO_TARGET_DIR:-target}/debug/demo"

.PHONY: test
test: prerequisites lint unit e2e ## Everything that has to pass before a change goes in.

.PHONY: unit
unit: ## The tests without a cluster: seconds to two minutes.
	@$(PREREQUISITES) build
	cargo test --workspace --locked $(UNIT)

.PHONY: e2e
e2e: ## The tests on a real Kubernetes and with the real torch, and the examples in the documentation of the code.
	@$(PREREQUISITES) api
	@$(WITH_KUBERNETES) $(TIER) cargo test --workspace --locked $(E2E) --no-run
	cargo test --workspace --locked $(E2E)
	cargo test --workspace --locked --doc

.PHONY: e2e-oldest
e2e-oldest: ## The tests on the API server of the oldest Kubernetes that is supported; builds it the first time, ten minutes.
	@$(PREREQUISITES) api
	SWANSONG_KUBERNETES=oldest cargo test --locked --package swansong --test e2e-api

.PHONY: flaky
flaky: ## Run `make unit` ten times beside a load on every core.
	@tests/lint/flaky 10 cargo test --workspace --locked --quiet $(UNIT)

.PHONY: soak
soak: ## Long runs, more than an hour: a million reviews, a thousand kills; replicas rolled and killed on a real cluster; dumps in real time.
	cargo bench --locked --package swansong --bench soak
	SWANSONG_KUBECTL_CASES=20000 SWANSONG_KUBECTL_SEED=$$(date +%s) cargo test --locked --package swansong --test e2e-kubectl
	SWANSONG_SIMULATIONS=100000 cargo test --locked --package swansong-faults simulation
	SWANSONG_KILLS=1000 cargo test --locked --package swansong --test e2e-api killed_again_and_again -- --nocapture
	SWANSONG_SOAK=1 cargo test --locked --package swansong --test e2e-availability rolling -- --nocapture
	FAKE_TIME_FACTOR=1 cargo test --locked --package swansong --test e2e-training each_loss -- --nocapture

.PHONY: prerequisites
prerequisites: ## Install what the tests need (on Debian, as root), or print the commands that do.
	@$(PREREQUISITES) test '$(MAKECMDGOALS)'
	@$(PREREQUISITES) node '$(MAKECMDGOALS)' || printf '\n\033[1;33m%s\033[0m\n\n' \
	  'NO TEST WILL START A POD: this machine lacks what is listed above. The other tests run.'
	@$(PREREQUISITES) training '$(MAKECMDGOALS)' || printf '\n\033[1;33m%s\033[0m\n\n' \
	  'NO TEST WILL RUN TORCH: this machine lacks what is listed above. The other tests run.'

.PHONY: fmt
fmt: ## Format the code.
	cargo fmt --all

.PHONY: fmt-check
fmt-check:
	cargo fmt --all --check

.PHONY: clippy
clippy:
	cargo clippy --workspace --all-targets --locked -- --deny warnings

.PHONY: doc
doc:
	RUSTDOCFLAGS='--deny warnings' cargo doc --workspace --no-deps --locked

.PHONY: lint
lint: words fmt-check clippy doc deny ## Words, format, clippy, documentation and dependencies, without tests.

.PHONY: words
words: ## Check the words and comments of code, docs and manifests.
	@python3 tests/lint/tests.py
	@tests/lint/words
	@tests/lint/comments

.PHONY: lines
lines: ## Count the lines of product code per crate.
	@tests/lint/lines

.PHONY: crates
crates: ## Check that each crate builds alone, without the features that others enable.
	@for crate in $$(cargo tree --workspace --depth 0 --prefix none --locked | cut -d ' ' -f 1 | sort -u); do \
	  echo "cargo check --package $$crate"; cargo check --quiet --locked --package "$$crate" || exit 1; done

.PHONY: deny
deny: $(DENY) ## Check licences, sources, bans and known flaws of dependencies.
	$(DENY) --locked --workspace check --hide-inclusion-graph bans licenses sources
	@if GIT_TERMINAL_PROMPT=0 timeout 20 git ls-remote --quiet $(ADVISORIES) HEAD >/dev/null 2>&1; then \
	  $(DENY) --locked --workspace check advisories; \
	else \
	  printf '\n\033[1;33m%s\033[0m\n\n' 'ADVISORIES NOT CHECKED: $(ADVISORIES) can not be reached from here.'; \
	fi

# Built once, outside target/, so that `make clean` doesn't cost the minutes again.
$(DENY):
	CARGO_TARGET_DIR='$(CACHE)/tools/build' cargo install --locked --version $(DENY_VERSION) \
	  --root '$(CACHE)/tools/cargo-deny-$(DENY_VERSION)' cargo-deny
	rm -rf '$(CACHE)/tools/build'

.PHONY: bench
bench: ## Measure the core, and the webhook beside its peers.
	cargo bench --locked --package swansong-inject --bench core
	cargo bench --locked --package swansong-inject --bench discovery
	cargo bench --locked --package swansong-agent --bench scan
	cargo bench --locked --package swansong --bench agent
	cargo bench --locked --package swansong --bench faults
	cargo bench --locked --package swansong --bench load
	cargo bench --locked --package swansong-gateway --bench gateway
	python3 tests/benches/launcher_hook.py

FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZ_SECONDS; needs a nightly compiler and cargo-fuzz.
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { \
	  echo 'make fuzz needs: rustup toolchain install nightly && cargo install --locked cargo-fuzz' >&2; exit 1; }
	for target in $$(cd tests/fuzz && cargo +nightly fuzz list); do \
	  mkdir -p "tests/fuzz/corpus/$$target"; \
	  cargo +nightly fuzz run "$$target" "tests/fuzz/corpus/$$target" "tests/fuzz/seeds/$$target" -- \
	    -max_total_time=$(FUZZ_SECONDS) -max_len=65536 -dict=tests/fuzz/dictionary; \
	done

.PHONY: image
image: ## Make the image IMAGE as target/image/swansong.tar, without engine and registry.
	cargo build --release --locked --package swansong
	@mkdir -p target/image
	$(TESTCLUSTER) image --name '$(IMAGE)' --output target/image/swansong.tar \
	  --program "$${CARGO_TARGET_DIR:-target}/release/swansong=/swansong" --entrypoint /swansong \
	  $(addprefix --library ,$(DRIVER_NEEDS))
	@echo 'target/image/swansong.tar holds $(IMAGE); load it on each node that may run it:'
	@echo '  ctr --namespace k8s.io images import swansong.tar'

.PHONY: containerfile
containerfile: ## Build manifests/Containerfile with buildah, with base images that are made here, and run the image.
	@$(PREREQUISITES) containerfile containerfile
	@tests/support/containerfile.sh

.PHONY: kustomization
kustomization:
	@manifests/with-image '$(OVERLAY)' '$(IMAGE)' target/install

.PHONY: install
install: kustomization ## Install IMAGE with OVERLAY into the cluster of $KUBECONFIG.
	$(KUBECTL) apply --kustomize target/install
	$(KUBECTL) --namespace swansong-system rollout status deployment/swansong-webhook --timeout 3m

.PHONY: uninstall
uninstall: kustomization ## Remove it again; running jobs stay as they are.
	$(KUBECTL) delete mutatingwebhookconfiguration swansong --ignore-not-found
	$(KUBECTL) delete --kustomize target/install --ignore-not-found

.PHONY: agent-kustomization
agent-kustomization:
	@manifests/with-image '$(AGENT)' '$(IMAGE)' target/install-agent

.PHONY: install-agent
install-agent: agent-kustomization ## Install the node agent of IMAGE with AGENT into the cluster of $KUBECONFIG.
	$(KUBECTL) apply --kustomize target/install-agent
	$(KUBECTL) --namespace swansong-agent rollout status daemonset/swansong-agent --timeout 3m

.PHONY: uninstall-agent
uninstall-agent: agent-kustomization ## Remove the node agent; nodes keep what they showed last.
	$(KUBECTL) delete --kustomize target/install-agent --ignore-not-found

.PHONY: gateway-kustomization
gateway-kustomization:
	@manifests/with-image gateway '$(IMAGE)' target/install-gateway

.PHONY: install-gateway
install-gateway: gateway-kustomization ## Install the gateway of IMAGE into the cluster of $KUBECONFIG; install the agent first.
	$(KUBECTL) apply --kustomize target/install-gateway
	$(KUBECTL) --namespace swansong-agent rollout status deployment/swansong-gateway --timeout 3m

.PHONY: uninstall-gateway
uninstall-gateway: gateway-kustomization ## Remove the gateway, its ClusterRole and its binding; agents send directly.
	$(KUBECTL) delete --kustomize target/install-gateway --ignore-not-found

.PHONY: clean
clean: ## Remove what was built here; the cache of tools and Kubernetes programs stays.
	cargo clean
