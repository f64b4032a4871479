#!/bin/sh
# Fails if generated files are not what the generators write. It compares with
# copies, not with the last commit, so it works on uncommitted changes too; the
# regenerated files stay in place.
set -eu
cd "$(dirname "$0")/.."

generated="$(ls api/*/zz_generated.*.go) config/crd/bases docs/reference docs/plugins charts library"
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
for path in $generated; do
	mkdir -p "$before/$(dirname "$path")"
	cp -R "$path" "$before/$path"
done

make --no-print-directory generate manifests

stale=0
for path in $generated; do
	diff -ru "$before/$path" "$path" || stale=1
done
if [ "$stale" -ne 0 ]; then
	echo "Generated files were stale. They have been written anew: commit them." >&2
	exit 1
fi
echo "Generated files are up to date"
