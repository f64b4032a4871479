#!/bin/sh
# Fails if generated files are not what the generators write. It compares with
# copies, not with the last commit, so it works on uncommitted changes too; the
# regenerated files stay in place.
set -eu
cd "$(dirname "$0")/.."

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
mkdir "$before/api"
cp api/*/zz_generated.*.go "$before/api"
cp -R config/crd/bases "$before/bases"
cp -R docs/reference "$before/reference"

make --no-print-directory generate manifests

stale=0
mkdir "$before/api-after"
cp api/*/zz_generated.*.go "$before/api-after"
diff -ru "$before/api" "$before/api-after" || stale=1
diff -ru "$before/bases" config/crd/bases || stale=1
diff -ru "$before/reference" docs/reference || stale=1
if [ "$stale" -ne 0 ]; then
	echo "Generated files were stale. They have been written anew: commit them." >&2
	exit 1
fi
echo "Generated files are up to date"
