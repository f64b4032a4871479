#!/usr/bin/env bash
# Runs every test. The integration tests spend much of their time waiting, so SHARDS (4)
# processes share them, each with a control plane of its own, beside the other tests.
# GOTESTSUM is the program that runs them. FULL=1 runs the long forms of random tests.
#
#   hack/test.sh [integration]
set -euo pipefail
cd "$(dirname "$0")/.."
shards=${SHARDS:-4}
short=-short
[ -z "${FULL:-}" ] || short=
pids=()
programs=$(mktemp -d)
trap '[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true; rm -rf "$programs"' EXIT

tests() { "$GOTESTSUM" --format pkgname --format-hide-empty-pkg ${JSONFILE:+--jsonfile "$JSONFILE"} "$@"; }

# The checks that go test makes first are part of make lint, and take as long as some
# of the tests: they read every dependency. Symbols for debuggers are a fifth of a link.
export GOFLAGS="${GOFLAGS:-} -vet=off -ldflags=-w"

# Compilers collect garbage less often, as in the Makefile; tests must not. Those of tests
# leave the processors to what runs.
building=(env GOGC=400 GOMEMLIMIT=4GiB)
compilers="${building[*]} nice"

# These draw thousands of cases from what shares no memory. The race detector makes
# them ten times slower, so it runs only their tests that end in Concurrently.
random=(./internal/policy ./internal/registration ./internal/pki ./internal/celengine ./internal/unstructuredjson ./internal/migrate/kyverno/classic)

# Folders outside of test whose code or tests start goroutines or share memory: the
# race detector finds nothing in the others. The short form has those of the manager.
concurrent() {
	local others='^test/|^hack/(benchstat|image|krew|kubernetes|tools|vulncheck)/'
	[ -n "${FULL:-}" ] || others='^test/|^hack/|^internal/(cli|kubernetes|load|migrate|nativeengine|offline|policytest)/'
	git ls-files '*.go' | grep -vE "$others" |
		xargs grep -lE '(^|[[:space:]])go (func|[[:alpha:].]+\()|errgroup|"sync"|"sync/atomic"' |
		xargs -n1 dirname | sort -u | sed 's|^|./|' | grep -vxF "$(printf '%s\n' "${random[@]}")"
}

# Go repeats a test if files of its module have changed that it has read. It does not know what
# the programs read that a test runs, or what is in other modules: such tests are always repeated.
unit=(-toolexec "$compilers" ${short:+"$short"})
whole=("${unit[@]}" -count=1)

running_programs() {
	git ls-files 'test/*.go' 'hack/*.go' | xargs grep -lE '"os/exec"|"github.com/ostiary/ostiary/test/(clitest|controlplane|manager)' |
		xargs -n1 dirname | sort -u | sed 's|^|github.com/ostiary/ostiary/|'
}

modules() {
	# Krew and cert-manager compile for minutes. What the manager depends on changes the
	# module of cert-manager: its go.mod follows.
	local module status=0 modules=(hack/kubernetes hack/image hack/benchstat hack/vulncheck test/chart)
	[ -z "${FULL:-}" ] || modules+=(hack/krew)
	for module in "${modules[@]}"; do (cd "$module" && tests -- "${whole[@]}" ./...) || status=1; done
	[ -z "${FULL:-}" ] || (cd test/certmanager && tests -- "${whole[@]}" -mod=mod) || status=1
	return "$status"
}

packages() {
	local all status=0 skip='/test/integration$'
	# The manager under test is a program of its own: here the race detector would
	# check the harness alone. The suite of the control plane is long and tests no code
	# of Ostiary.
	[ -n "${FULL:-}" ] || skip="$skip|/test/controlplane\$"
	# shellcheck disable=SC2046 # several packages
	all=$(go list "${random[@]}" && go list ./... | grep -vE "$skip" | grep -vxF "$(go list $(concurrent) "${random[@]}")")
	# shellcheck disable=SC2046 # several packages
	tests -- "${whole[@]}" -timeout 30m $(grep -xF "$(running_programs)" <<<"$all") || status=1
	# shellcheck disable=SC2046 # several packages
	tests -- "${unit[@]}" -timeout 30m $(grep -vxF "$(running_programs)" <<<"$all") || status=1
	return "$status"
}

raced() {
	local status=0
	# shellcheck disable=SC2046 # several packages
	CGO_ENABLED=1 tests -- "${unit[@]}" -race $(concurrent) || status=1
	CGO_ENABLED=1 tests -- "${unit[@]}" -race -run 'Concurrently$' ./internal/policy ./internal/unstructuredjson || status=1
	modules || status=1
	return "$status"
}

# The longest tests, which come first: the processes end at about the same time.
long='TestLibrary TestRandomWalk TestExamplesOfPlugins TestUnreadableObjects TestErrorPaths TestRestartWithManyPolicies
	TestAuditFindsWhatUpdatesFind TestGuides TestExamplesInDocuments TestAuditOfLibrary TestSamples TestDeletedConfigurationsStayDeleted
	TestLeaderDiesDuringRotation TestNewVersionUnderLoad TestRotationFailsNoRequest TestBodiesOfEveryShapeAreDecided TestPolicyTests
	TestCookbook TestFirewallBetweenAPIServerAndOstiary TestNoWriteAtRest TestMovesKeepEnforcing'

integrations() {
	local i=0 name status=0 names queue=$programs/queue processes=()
	names=$(grep -ho '^func Test[A-Za-z0-9_]*(t ' test/integration/*_test.go | sed 's/^func //; s/(t //')
	mkdir "$queue"
	# shellcheck disable=SC2086 # several names
	for name in $(printf '%s\n' $long | grep -xF "$names") $(grep -vxF "$(printf '%s\n' $long)" <<<"$names"); do
		i=$((i + 1))
		: >"$(printf '%s/%03d-%s' "$queue" "$i" "$name")"
	done
	for i in $(seq "$shards"); do
		integration "$i" &
		processes+=($!)
	done
	for i in "${processes[@]}"; do wait "$i" || status=1; done
	if [ -n "$(ls "$queue")" ]; then
		printf 'test: these tests did not run: %s\n' "$(ls "$queue")" >&2
		status=1
	fi
	return "$status"
}

integration() { # PROCESS
	(cd test/integration && OSTIARY_TEST_QUEUE=$programs/queue JSONFILE=${TIMES:+$TIMES-$1.json} tests --raw-command -- go tool test2json -t \
		-p test/integration "$programs/integration.test" -test.v=test2json -test.paniconexit0 ${short:+-test.short} -test.timeout 60m)
}

# Once, rather than in each process. The flags are those of controlplane.BuildManager.
"${building[@]}" CGO_ENABLED=0 go build -trimpath -tags=grpcnotrace -o "$programs/ostiary" .
"${building[@]}" go test -c -o "$programs/integration.test" ./test/integration
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
