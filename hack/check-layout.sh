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

for page in $(find README.md SECURITY.md CONTRIBUTING.md CODE_OF_CONDUCT.md docs -name '*.md' ! -path 'docs/reference/*' ! -path docs/performance/results.md); do
	words=$(wc -w <"$page")
	if [ "$words" -gt 1500 ]; then
		complain "$page: $words words, at most 1500 are allowed: split it by subject"
	fi
done

# Tags of actions can be moved, so workflows name commits, with the version in a comment.
unpinned=$(grep -hE '^[[:space:]]*-?[[:space:]]*uses:' .github/workflows/*.yml | grep -vE 'uses: [^@]+@[0-9a-f]{40} # v[0-9.]+$' || true)
[ -z "$unpinned" ] || complain ".github/workflows: pin these actions to a commit, with the version as a comment:
$unpinned"

# The documents install the version of the charts.
version=$(sed -n 's/^version: //p' charts/ostiary/Chart.yaml)
for other in $(grep -rhoE '(releases/download/v|ostiary:v|charts/[a-z-]+ --version |\?ref=v|targetRevision: |\{tag: )[0-9]+\.[0-9]+\.[0-9]+' README.md docs charts/*/Chart.yaml | sed 's/.*[^0-9.]//' | sort -u) $(sed -n 's/^version: //p' charts/ostiary-policies/Chart.yaml); do
	[ "$other" = "$version" ] || complain "documents or charts name the version $other, and charts/ostiary/Chart.yaml $version: make them equal"
done

exit "$found"
