#!/bin/sh
# Runs every fuzz target of the main module, one after the other.
#
#   hack/fuzz.sh [TIME]
set -eu
cd "$(dirname "$0")/.."
time=${1:-30s}

targets=$(find . -name '*_test.go' ! -path './bin/*' ! -path './hack/kubernetes/*' ! -path './hack/tools/*' \
	-exec grep -Ho '^func Fuzz[A-Za-z0-9_]*' {} + | sed 's|/[^/]*:func | |' | sort -u)
if [ -z "$targets" ]; then
	echo "fuzz: found no target: a function FuzzX in a file *_test.go" >&2
	exit 1
fi

count=0
while read -r package target; do
	echo "Fuzzing $target in $package for $time"
	# Minimizing inputs that are only new, not failing, is not worth the time.
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x "$package" </dev/null
	count=$((count + 1))
done <<LIST
$targets
LIST
echo "Fuzzed $count targets for $time each"
