#!/usr/bin/env bash
# Runs every test. The integration tests spend most of their time waiting, so they
# run in SHARDS (3) processes, each with a control plane of its own, beside the
# other tests. GOTESTSUM is the program that runs them.
#
#   hack/test.sh [integration]
set -euo pipefail
cd "$(dirname "$0")/.."
shards=${SHARDS:-3}
pids=()
trap '[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true' EXIT

tests() { "$GOTESTSUM" --format pkgname --format-hide-empty-pkg "$@"; }

# These draw thousands of cases from what shares no memory. The race detector makes
# them ten times slower, so it runs only their tests that end in Concurrently.
random=(./internal/pki ./internal/policy ./internal/registration)

packages() {
	local module
	for module in hack/kubernetes hack/image test/chart; do (cd $module && tests); done
	# What the manager depends on changes this module: its go.mod follows.
	(cd test/certmanager && tests -- -mod=mod)
	# The manager under test is a program of its own: here the race detector would
	# check the harness alone.
	go list ./test/... | grep -v /test/integration | xargs "$GOTESTSUM" --format pkgname --format-hide-empty-pkg -- -timeout 30m "${random[@]}"
	export CGO_ENABLED=1
	tests -- -race -run 'Concurrently$' ./internal/policy
	go list ./... | grep -v /test/ | grep -vxF "$(go list "${random[@]}")" | xargs "$GOTESTSUM" --format pkgname --format-hide-empty-pkg -- -race
}

integration() { # PART
	local names
	names=$(bin/integration -test.list . | awk -v n="$shards" -v part="$1" '/^Test/ && NR % n == part { printf "%s%s", separator, $0; separator = "|" }')
	tests -- -count=1 -timeout 60m -run "^($names)\$" ./test/integration
}

go test -c -o bin/integration ./test/integration
for part in $(seq 0 $((shards - 1))); do
	integration "$part" &
	pids+=($!)
done
if [ "${1:-}" != integration ]; then
	packages &
	pids+=($!)
fi

status=0
for pid in "${pids[@]}"; do
	wait "$pid" || status=1
done
pids=()
exit "$status"
