#!/bin/sh
# Compares the CPU per request of the manager in this folder with that of another
# revision, in turn, and fails if it can be more than 5 % higher:
#
#   [ROUNDS=10] [SETS=A,B,C,D] [DURATION=2s] hack/bench-compare.sh REVISION VERSION
#
# bin/bench and bin/ostiary are those of this folder. The measurements stay in
# bin/bench-compare.txt.
set -eu
cd "$(dirname "$0")/.."
version=$2
base=$(git rev-parse --verify --quiet "$1^{commit}") || {
	echo "bench-compare: there is no revision \"$1\": give BASE=REV, for example BASE=main" >&2
	exit 2
}
tree=bin/bench-base
trap 'git worktree remove --force "$tree" 2>/dev/null || true; git worktree prune' EXIT
trap 'exit 1' HUP INT TERM
git worktree remove --force "$tree" 2>/dev/null || rm -rf "$tree" # of a run that was killed
git worktree prune
git worktree add --quiet --detach "$tree" "$base"
echo "Building the manager of $(git log -1 --format='%h %s' "$base")"
(cd "$tree" && GOGC=400 go build -ldflags "-X main.version=$version" -o ../ostiary-base .)

result=bin/bench-compare.txt
bin/bench -base bin/ostiary-base -sets "${SETS:-A,B,C,D}" -rounds "${ROUNDS:-10}" -duration "${DURATION:-2s}" >"$result"
cd hack/benchstat
go tool benchstat -col revision "../../$result"
go run . "../../$result"
