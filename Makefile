# The targets need Go, make and a POSIX shell. Everything else is a Go module at a
# pinned version: the tools below, and the control plane of the tests.

.SUFFIXES:

VERSION = $$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
IMAGE = ostiary:dev
FUZZTIME = 30s
N = 2000
SCENARIO = all
VULNDB =
KUBERNETES = 1.36
BASE = /

# The image's flags, for the tests and the linter too, so that each package is compiled
# once; the race detector alone needs cgo. The traces of gRPC would find methods by name,
# and make the linker keep every method of every Kubernetes type. Data for debuggers, which
# no image has, would be a tenth of the compilers' time.
export CGO_ENABLED = 0
export GOFLAGS := $(GOFLAGS) -trimpath -tags=grpcnotrace -gcflags=all=-dwarf=false

# hack/kubernetes/go.mod is that of 1.36. Each other version has a file and a folder of
# its own, and the tests find the programs there as they find those of envtest.
k8s := bin/k8s
kubernetes = cd hack/kubernetes && go run . -out ../../$(k8s)
ifneq ($(KUBERNETES),1.36)
k8s := bin/k8s-$(KUBERNETES)
kubernetes = cd hack/kubernetes && KUBEBUILDER_ASSETS= GOFLAGS="$(GOFLAGS) -modfile=$(KUBERNETES).mod" go run . -out ../../$(k8s)
export KUBEBUILDER_ASSETS := $(CURDIR)/$(k8s)
endif

# Tools are built once for each content of hack/tools/go.mod and version of Go.
tools := bin/tools/$(shell { go env GOVERSION; cat hack/tools/go.mod hack/tools/go.sum; } | cksum | cut -d' ' -f1)
CONTROLLER_GEN := $(tools)/controller-gen
GOLANGCI_LINT := $(tools)/golangci-lint
GOTESTSUM := $(tools)/gotestsum
KUSTOMIZE := $(tools)/kustomize
HELM := bin/helm/$(shell { go env GOVERSION; cat hack/helm/go.mod hack/helm/go.sum; } | cksum | cut -d' ' -f1)/helm
COSIGN := bin/cosign/$(shell { go env GOVERSION; cat hack/cosign/go.mod hack/cosign/go.sum; } | cksum | cut -d' ' -f1)/cosign
ACTIONLINT := bin/actionlint/$(shell { go env GOVERSION; cat hack/actionlint/go.mod hack/actionlint/go.sum; } | cksum | cut -d' ' -f1)/actionlint

# Compilers, linkers and the linter would spend a sixth of their time in collections of
# garbage. Targets that run the manager or tests must not have this.
building := build image kubernetes node e2e-build checks-image lint $(CONTROLLER_GEN) $(GOLANGCI_LINT) $(GOTESTSUM) $(KUSTOMIZE) $(HELM) $(ACTIONLINT) $(COSIGN)
$(building): export GOGC = 400
$(building): export GOMEMLIMIT = 4GiB

.PHONY: help
help: ## List the targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

##@ Build and run

.PHONY: build
build: ## Build the manager, bin/ostiary
	@echo "Building bin/ostiary"
	@go build -ldflags "-X main.version=$(VERSION)" -o bin/ostiary .

.PHONY: cli
cli: ## Build the plugin of kubectl, bin/kubectl-ostiary
	@echo "Building bin/kubectl-ostiary"
	@go build -ldflags "-s -w -X main.version=$(VERSION)" -o bin/kubectl-ostiary ./cmd/kubectl-ostiary

.PHONY: cli-archives
cli-archives: ## Build the plugin for six platforms, as archives with a manifest for krew, in dist/cli
	@echo "Building kubectl-ostiary for six platforms"
	@cd hack/krew && go run . -version "$(VERSION)" -created "$$(git log -1 --format=%ct)" $(CLIFLAGS)
	@cd hack/krew && go tool validate-krew-manifest -skip-install -manifest ../../dist/cli/ostiary.yaml

.PHONY: image
image: ## Build the image of the manager, dist/ostiary.tar, without a daemon or a registry
	@echo "Building the image"
	@cd hack/image && go run . -name "$(IMAGE)" -version "$(VERSION)" -created "$$(git log -1 --format=%ct)" -revision "$$(git rev-parse HEAD)" $(IMAGEFLAGS)

.PHONY: kubernetes
kubernetes: ## Build a Kubernetes control plane for tests, demo and benchmarks (once); KUBERNETES=1.34, 1.35, 1.36, 1.37
	@$(kubernetes)

.PHONY: prometheus
prometheus: ## Unpack Prometheus and promtool for tests from their Debian package into bin/prometheus (once)
	@hack/prometheus.sh bin/prometheus

.PHONY: demo
demo: kubernetes build cli ## Show Ostiary on a local control plane, until Ctrl-C (ONCE=1: exit at the end)
	@go build -o bin/demo ./hack/demo # go run would keep SIGTERM from it
	@exec bin/demo $${ONCE:+-once}

.PHONY: demo-cast
demo-cast: kubernetes build cli ## Record the demo for the site, docs/images/demo.cast
	@go build -o bin/demo ./hack/demo
	@exec bin/demo -once -cast docs/images/demo.cast

.PHONY: site
site: ## Build the documentation site, dist/site, and check its links and pages (Node.js 18, npm); BASE=/ is its path
	@hack/site/build.sh $(BASE)

.PHONY: site-check
site-check: site ## Check the site in a headless Chromium: contrast, width, search, copy buttons; screenshots in dist/screenshots
	@cd bin/site && node browser.mjs ../../dist/site ../../dist/screenshots

.PHONY: bench
bench: kubernetes build ## Measure Ostiary beside a webhook that allows everything and the native engines of two versions (BENCHFLAGS="-check -short")
	@$(MAKE) --no-print-directory kubernetes KUBERNETES=1.37
	@go build -o bin/bench ./hack/bench # go run would keep SIGTERM from it
	@exec bin/bench $(BENCHFLAGS)

.PHONY: bench-check
bench-check: kubernetes build ## Fail if a direct call costs more than twice its budget (docs/performance/README.md)
	@go build -o bin/bench ./hack/bench
	@exec bin/bench -check -slack 2 -sets A,B,C,D -compare= -scale 0 -idle 0 -duration 500ms

.PHONY: bench-compare
bench-compare: BASE = HEAD^
bench-compare: kubernetes build ## Compare the CPU per request with that of BASE=REV in turn, and fail if it can be 5 % higher; ROUNDS=10 SETS=A,B,C,D DURATION=2s
	@go build -o bin/bench ./hack/bench
	@ROUNDS="$(ROUNDS)" SETS="$(SETS)" DURATION="$(DURATION)" hack/bench-compare.sh "$(BASE)" "$(VERSION)"

.PHONY: bench-exceptions
bench-exceptions: kubernetes build ## Compare the CPU per request with and without 10,000 exceptions from 1,000 policies; ROUNDS=10 SETS=D DURATION=2s
	@go build -o bin/bench ./hack/bench
	@bin/bench -exceptions 10000 -sets "$(or $(SETS),D)" -rounds "$(or $(ROUNDS),10)" -duration "$(or $(DURATION),2s)" >bin/bench-exceptions.txt
	@cd hack/benchstat && go run . ../../bin/bench-exceptions.txt

.PHONY: microbench
microbench: ## Run the Go benchmarks
	@go test -run '^$$' -bench . -benchmem ./test/bench ./internal/... ./webhooks/...

##@ A real node (Debian, root)

.PHONY: node
node: kubernetes
	@$(kubernetes) kube-scheduler kube-proxy kubelet
	@cd hack/image && go run . -package ./hack/cluster/pause -program pause -name ostiary.dev/pause:1 -out ../../dist/pause.tar >/dev/null
	@go build -o bin/cluster ./hack/cluster

.PHONY: cluster-up
cluster-up: node ## Bring up a Kubernetes node on this machine: kubelet, containerd, kube-proxy
	@exec bin/cluster up

.PHONY: cluster-load
cluster-load: image ## Load the image of the manager onto that node
	@exec bin/cluster load-image dist/ostiary.tar

.PHONY: cluster-down
cluster-down: ## Stop that node, and remove everything that it created
	@go build -o bin/cluster ./hack/cluster
	@exec bin/cluster down

# The external webhook of the end-to-end tests.
.PHONY: checks-image
checks-image:
	@cd hack/image && go run . -package ./test/e2e/checks -program checks -name ostiary.dev/checks:1 -out ../../dist/checks.tar >/dev/null

# The long form publishes two releases to a registry on loopback.
release-programs = $(if $(findstring -short,$(E2EFLAGS)),,$(COSIGN))

# The environment of the end-to-end tests.
e2e = E2E_KUBECTL=$(CURDIR)/$(k8s)/kubectl E2E_HELM=$(CURDIR)/$(HELM) E2E_MANIFESTS=$(CURDIR)/dist/install.yaml E2E_IMAGE=$(IMAGE) E2E_GOTESTSUM=$(CURDIR)/$(GOTESTSUM)

.PHONY: e2e-build
# The node last: builds of Kubernetes programs hold a lock that other targets wait for.
e2e-build: image checks-image $(HELM) node

.PHONY: e2e
# The tests run the commands of the documents, which use this image.
e2e: IMAGE = ghcr.io/ostiary/ostiary:dev
e2e: e2e-build install-yaml $(GOTESTSUM) $(release-programs) ## Install, upgrade, load and uninstall Ostiary on a real node of this machine (Debian, root)
	@$(e2e) $(if $(release-programs),KUSTOMIZE=$(CURDIR)/$(KUSTOMIZE) E2E_COSIGN=$(CURDIR)/$(COSIGN)) hack/e2e.sh

.PHONY: e2e-here
e2e-here: kubernetes install-yaml $(HELM) ## The same on the cluster of KUBECONFIG, which has IMAGE and no Ostiary
	@$(e2e) go test -tags e2e,grpcnotrace -count=1 -timeout 30m -v $(E2EFLAGS) ./test/e2e

##@ Check

.PHONY: test
test: kubernetes prometheus $(GOTESTSUM) ## Run every test, with real API servers
	@echo "Testing every package (the first run compiles for some minutes)"
	@GOTESTSUM=$(CURDIR)/$(GOTESTSUM) hack/test.sh

.PHONY: test-integration
test-integration: kubernetes prometheus $(GOTESTSUM) ## Run the integration tests alone; OSTIARY_RACE=1: with the race detector in the manager
	@GOTESTSUM=$(CURDIR)/$(GOTESTSUM) hack/test.sh integration

.PHONY: conformance
conformance: kubernetes ## Compare N (2000) random cases with the native policies of Kubernetes; SEED repeats a run
	@go test ./test/conformance -count=1 -timeout=120m -v -args -n=$(N) $(if $(SEED),-seed=$(SEED),-seed=$(shell date +%s))

.PHONY: migration-oracle
migration-oracle: ENGINE = kyverno gatekeeper
migration-oracle: ## Compare converted policies with the engines of their projects, with N (2000) random requests; SEED repeats a run
	@echo "Building the engines of $(ENGINE) (the first time some minutes)"
	@for engine in $(ENGINE); do \
		(cd test/oracles/$$engine && GOGC=400 GOMEMLIMIT=4GiB go build -ldflags "-s -w" -o $(CURDIR)/bin/oracles/$$engine .) || exit 1; done
	@go test ./test/oracles -count=1 -timeout=300m -v -args -n=$(N) $(if $(SEED),-seed=$(SEED),-seed=$(shell date +%s)) \
		$(foreach engine,$(ENGINE),-$(engine)=$(CURDIR)/bin/oracles/$(engine)) $(if $(LIBRARY),-gatekeeper-library=$(LIBRARY)) \
		$(if $(POLICIES),-kyverno-policies=$(abspath $(POLICIES)))

.PHONY: flux-check
flux-check: kubernetes build ## Test the documented objects of Flux with its kustomize-controller
	@echo "Building kustomize-controller (the first time some minutes)"
	@mkdir -p bin/flux
	@cd test/flux/controller && GOGC=400 GOMEMLIMIT=4GiB go build -ldflags "-s -w" -o $(CURDIR)/bin/flux/ github.com/fluxcd/kustomize-controller
	@go test -tags flux,grpcnotrace -count=1 -timeout 30m ./test/flux -args -ostiary=$(CURDIR)/bin/ostiary \
		-kustomize-controller=$(CURDIR)/bin/flux/kustomize-controller \
		-definition="$$(cd test/flux/controller && go list -m -f '{{.Dir}}' github.com/fluxcd/kustomize-controller)/config/crd/bases"

.PHONY: chaos
chaos: kubernetes ## Inject faults under load and count failed requests: SCENARIO=all (the default, hours), ci, or names (docs/chaos/README.md)
	@go test -c -o bin/chaos ./test/chaos
	@cd test/chaos && exec ../../bin/chaos -test.run="^TestChaos\$$" -test.timeout=0 -scenario=$(SCENARIO) $(CHAOSFLAGS)

.PHONY: attack
attack: SCENARIO = attack
attack: ## Attack three replicas as hostile callers, tenants and authors (docs/chaos/attacks.md); SCENARIO=tenant, ATTACKFLAGS=-test.short
	@$(MAKE) --no-print-directory chaos SCENARIO="$(SCENARIO)" CHAOSFLAGS="$(ATTACKFLAGS)"

.PHONY: conformance-plugins
conformance-plugins: kubernetes ## Compare plugins with the native ones, with N (2000) random Pods and all fixtures; SEED repeats a run
	@go test ./test/plugins -count=1 -timeout=120m -v -args -fixtures -n=$(N) $(if $(SEED),-seed=$(SEED),-seed=$(shell date +%s))

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@hack/fuzz.sh $(FUZZTIME)

lint = $(CURDIR)/$(GOLANGCI_LINT) run --allow-parallel-runners

.PHONY: lint
lint: $(GOLANGCI_LINT) $(ACTIONLINT) ## Check style, imports, workflows and the layout of the repository
	@hack/check-layout.sh
	@$(ACTIONLINT) -shellcheck= -pyflakes= # whether they are installed must not change the result
	@echo "Linting"
	@$(lint)
	@for module in hack/benchstat hack/image hack/krew hack/vulncheck test/chart; do (cd $$module && $(lint)) || exit 1; done
	@# This module replaces the staging modules of Kubernetes with their releases.
	@cd hack/kubernetes && $(lint) --disable gomoddirectives

.PHONY: vulncheck
vulncheck: build ## Fail if the manager holds code with a known vulnerability, by the database that hack/vulndb pins; VULNDB=https://vuln.go.dev: of today
	@cd hack/vulncheck && go run . -db "$(VULNDB)" $(VULNFLAGS) ../../bin/ostiary

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the Go files
	@$(GOLANGCI_LINT) fmt

.PHONY: check-generated
check-generated: $(CONTROLLER_GEN) ## Regenerate, and fail if that changes a file
	@hack/check-generated.sh

##@ Generate

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Generate deep copies of the API types
	@echo "Generating deep copies"
	@$(CONTROLLER_GEN) object paths=./api/...

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate the CustomResourceDefinitions and their reference
	@echo "Generating the CustomResourceDefinitions and their reference"
	@$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases
	@go run ./hack/crdlimits config/crd/bases/*.yaml
	@go run ./hack/docs definition config/crd/bases/admission.ostiary.dev_webhookpolicies.yaml docs/reference/webhookpolicy.md
	@go run ./hack/docs definition config/crd/bases/admission.ostiary.dev_webhookpolicyexceptions.yaml docs/reference/webhookpolicyexception.md
	@go run ./hack/docs definition config/crd/bases/admission.ostiary.dev_clusterwebhookpolicyexceptions.yaml docs/reference/clusterwebhookpolicyexception.md
	@go run ./hack/docs schema config/crd/bases/admission.ostiary.dev_webhookpolicies.yaml docs/reference/webhookpolicy.schema.json
	@go run ./hack/docs flags docs/reference/flags.md
	@go run ./hack/docs metrics docs/reference/metrics.md
	@go run ./hack/docs packages docs/reference/packages.md
	@go run ./hack/docs interplay internal/policy/testdata/interplay.yaml docs/reference/interplay.md
	@go run ./hack/docs plugins docs/plugins
	@go run ./hack/docs commands docs/reference/commands.md
	@mkdir -p bin/policytest
	@$(CONTROLLER_GEN) crd paths=./internal/policytest/v1alpha1 output:crd:dir=bin/policytest
	@go run ./hack/docs policytest bin/policytest/test.ostiary.dev_policytests.yaml docs/reference/policytest.md
	@go run ./hack/docs schema bin/policytest/test.ostiary.dev_policytests.yaml docs/reference/policytest.schema.json
	@go run ./hack/docs chart charts/ostiary docs/reference/values.md
	@go run ./hack/docs library
	@hack/chart-files.sh

.PHONY: install-yaml
install-yaml: $(KUSTOMIZE) ## Write the manifests of an installation to dist/install.yaml, and of its test to dist/self-test.yaml
	@mkdir -p dist
	@$(KUSTOMIZE) build config/default > dist/install.yaml
	@$(KUSTOMIZE) build config/self-test > dist/self-test.yaml
	@echo "Wrote dist/install.yaml and dist/self-test.yaml"

##@ Release

release = KUSTOMIZE=$(CURDIR)/$(KUSTOMIZE) COSIGN=$(CURDIR)/$(COSIGN) HELM=$(CURDIR)/$(HELM) hack/release.sh
REGISTRY = ghcr.io/ostiary

.PHONY: committed
committed:
	@[ -z "$$(git status --porcelain)" ] || { echo "release: the provenance names a commit, and git status shows changes: commit or remove them" >&2; exit 1; }

.PHONY: release
release: committed $(KUSTOMIZE) $(COSIGN) ## Build a release of this commit, with provenance and signatures, in dist/release; VERSION=v0.1.0
	@$(release) build "$(VERSION)"

.PHONY: publish
publish: $(KUSTOMIZE) $(COSIGN) ## Push the image and the charts of the release to REGISTRY, and sign them there; VERSION=v0.1.0
	@$(release) publish "$(VERSION)" "$(REGISTRY)"

.PHONY: release-check
release-check: committed $(KUSTOMIZE) $(COSIGN) $(HELM) ## Build a release twice, compare, and verify its signatures in a registry on loopback
	@$(release) check

##@ Clean

.PHONY: clean
clean: ## Remove built programs, except the tools and the control plane
	rm -rf bin/ostiary bin/ostiary-base bin/kubectl-ostiary bin/demo bin/bench bin/bench-compare.txt bin/bench-exceptions.txt bin/chaos dist

.PHONY: distclean
distclean: ## Remove everything that was built
	rm -rf bin dist

$(CONTROLLER_GEN): package = sigs.k8s.io/controller-tools/cmd/controller-gen
$(GOLANGCI_LINT): package = github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(GOTESTSUM): package = gotest.tools/gotestsum
$(KUSTOMIZE): package = sigs.k8s.io/kustomize/kustomize/v5

$(CONTROLLER_GEN) $(GOLANGCI_LINT) $(GOTESTSUM) $(KUSTOMIZE):
	@echo "Building $(@F) (once; golangci-lint takes a minute or two)"
	@cd hack/tools && go build -o $(CURDIR)/$@ $(package)

# A module of its own: Helm's versions are not those of the other tools.
$(HELM):
	@echo "Building helm (once; a minute or two)"
	@cd hack/helm && go build -o $(CURDIR)/$@ helm.sh/helm/v3/cmd/helm

$(ACTIONLINT):
	@echo "Building actionlint (once)"
	@cd hack/actionlint && go build -o $(CURDIR)/$@ github.com/rhysd/actionlint/cmd/actionlint

$(COSIGN):
	@echo "Building cosign (once; some minutes)"
	@cd hack/cosign && go build -ldflags "-s -w" -o $(CURDIR)/$@ github.com/sigstore/cosign/v2/cmd/cosign
