#!/usr/bin/env bash
# Runs every test. The integration tests spend most of their time waiting, so SHARDS
# (4) processes run at once, each with a control plane of its own, beside the other
# tests. There are twice as many parts, since some tests are much longer than others.
# GOTESTSUM is the program that runs them. FULL=1 runs the long forms of random tests.
#
#   hack/test.sh [integration]
set -euo pipefail
cd "$(dirname "$0")/.."
shards=${SHARDS:-4} parts=$((${SHARDS:-4} * 2))
short=-short
[ -z "${FULL:-}" ] || short=
pids=()
programs=$(mktemp -d)
trap '[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true; rm -rf "$programs"' EXIT

tests() { "$GOTESTSUM" --format pkgname --format-hide-empty-pkg ${JSONFILE:+--jsonfile "$JSONFILE"} "$@"; }

# The checks that go test makes first are part of make lint, and take as long as some
# of the tests: they read every dependency. Symbols for debuggers are a fifth of a link.
export GOFLAGS="${GOFLAGS:-} -vet=off -ldflags=-w"

# Compilers collect garbage less often, as in the Makefile; tests must not.
building=(env GOGC=400 GOMEMLIMIT=4GiB)

# These draw thousands of cases from what shares no memory. The race detector makes
# them ten times slower, so it runs only their tests that end in Concurrently.
random=(./internal/celengine ./internal/pki ./internal/policy ./internal/registration ./internal/unstructuredjson ./internal/migrate/kyverno/classic)

# Folders outside of test whose code or tests start goroutines or share memory: the
# race detector finds nothing in the others. The short form has those of the manager.
concurrent() {
	local others='^test/|^hack/(benchstat|image|krew|kubernetes|tools|vulncheck)/'
	[ -n "${FULL:-}" ] || others='^test/|^hack/|^internal/(cli|kubernetes|load|migrate|nativeengine|offline|policytest)/'
	git ls-files '*.go' | grep -vE "$others" |
		xargs grep -lE '(^|[[:space:]])go (func|[[:alpha:].]+\()|errgroup|"sync"|"sync/atomic"' |
		xargs -n1 dirname | sort -u | sed 's|^|./|' | grep -vxF "$(printf '%s\n' "${random[@]}")"
}

packages() {
	# Krew and cert-manager compile for minutes. What the manager depends on changes the
	# module of cert-manager: its go.mod follows.
	local module modules=(hack/kubernetes hack/image hack/benchstat hack/vulncheck test/chart)
	[ -z "${FULL:-}" ] || modules+=(hack/krew)
	for module in "${modules[@]}"; do (cd "$module" && tests -- $short ./...); done
	[ -z "${FULL:-}" ] || (cd test/certmanager && tests -- -mod=mod)
	# The manager under test is a program of its own: here the race detector would
	# check the harness alone. The suite of the control plane is long and tests no code
	# of Ostiary.
	local skip='/test/integration$'
	[ -n "${FULL:-}" ] || skip="$skip|/test/controlplane\$"
	# shellcheck disable=SC2046 # several packages
	tests -- $short -timeout 30m $(go list ./... | grep -vE "$skip" | grep -vxF "$(go list $(concurrent))")
}

raced() {
	export CGO_ENABLED=1
	# shellcheck disable=SC2046 # several packages
	"${building[@]}" go build -race $(concurrent)
	# shellcheck disable=SC2046 # several packages
	tests -- $short -race $(concurrent) && tests -- $short -race -run 'Concurrently$' ./internal/policy ./internal/unstructuredjson
}

# A process takes the next part when it has ended one.
integrations() {
	local part status=0
	for part in $(seq 0 $((parts - 1))); do
		[ "$part" -lt "$shards" ] || wait -n || status=1
		integration "$part" &
	done
	for part in $(seq "$shards"); do wait -n || status=1; done
	return "$status"
}

# Tests of more than a minute, the longest first, so that each part has as many of them.
long='TestLibrary TestRandomWalk TestExamplesInDocuments TestExamplesOfPlugins TestRotationFailsNoRequest TestErrorPaths
	TestAuditFindsWhatUpdatesFind TestRestartWithManyPolicies TestEventsOfActionChanges TestFirewallBetweenAPIServerAndOstiary
	TestSamples TestBackendMovesToAClosedPort TestRefusedBackends TestExternalWebhook TestUnreadableObjects TestNoWriteAtRest'

integration() { # PART
	local names
	# shellcheck disable=SC2086 # several names
	names=$({
		printf '%s\n' $long
		grep -ho '^func Test[A-Za-z0-9_]*(t ' test/integration/*_test.go | sed 's/^func //; s/(t //' | grep -vxF "$(printf '%s\n' $long)"
	} | awk -v n="$parts" -v part="$1" 'NR % n == part { printf "%s%s", separator, $0; separator = "|" }')
	(cd test/integration && JSONFILE=${TIMES:+$TIMES-$1.json} tests --raw-command -- go tool test2json -t -p test/integration \
		"$programs/integration.test" -test.v=test2json -test.paniconexit0 ${short:+-test.short} -test.timeout 60m -test.run "^($names)\$")
}

# Once, rather than in each process. The flags are those of controlplane.BuildManager.
"${building[@]}" go test -c -o "$programs/integration.test" ./test/integration
"${building[@]}" CGO_ENABLED=0 go build -trimpath -tags=grpcnotrace -o "$programs/ostiary" .
export OSTIARY_MANAGER=$programs/ostiary
all=(integrations)
[ "${1:-}" = integration ] || all+=(packages raced)
for part in "${all[@]}"; do
	$part &
	pids+=($!)
done

status=0
for pid in "${pids[@]}"; do
	wait "$pid" || status=1
done
pids=()
exit "$status"
