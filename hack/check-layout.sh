#!/bin/sh
# Checks the layout of the repository: the length of Go files, except tests and generated
# code, names of packages, the tests that documents name, and the length of documents.
set -eu
cd "$(dirname "$0")/.."

max=500
found=0
complain() {
	echo "$1" >&2
	found=1
}

files=$(find . -name '*.go' ! -path './bin/*' ! -path './.git/*')
[ -n "$files" ] || complain "check-layout: found no Go file at all"
for file in $files; do
	case $file in
	*_test.go | */zz_generated.*) continue ;;
	esac
	lines=$(wc -l <"$file")
	if [ "$lines" -gt "$max" ]; then
		complain "$file: $lines lines, at most $max are allowed: split it by what it does"
	fi
done

vague=$(echo "$files" | xargs grep -lE '^package (util|utils|common|helper|helpers|misc|shared)$' || true)
for file in $vague; do
	complain "$file: name the package after what it does, not $(sed -n 's/^package //p' "$file")"
done

declared=$(echo "$files" | xargs sed -nE 's/^func ((Test|Fuzz|Benchmark)[A-Za-z0-9_]*)\(.*/\1/p')
for test in $(grep -rhoE '\b(Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*' README.md SECURITY.md CONTRIBUTING.md docs 2>/dev/null | sort -u); do
	echo "$declared" | grep -qx "$test" || complain "docs: no test is named $test"
done

for page in $(find README.md SECURITY.md CONTRIBUTING.md docs -name '*.md' ! -path 'docs/reference/*'); do
	words=$(wc -w <"$page")
	if [ "$words" -gt 1500 ]; then
		complain "$page: $words words, at most 1500 are allowed: split it by subject"
	fi
done

exit "$found"
