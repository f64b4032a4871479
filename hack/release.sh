#!/usr/bin/env bash
# Makes and publishes a release of the commit that is checked out.
#
#   hack/release.sh build VERSION               write dist/release, and sign its checksums
#   hack/release.sh publish VERSION REGISTRY    push the image and the charts, and sign them
#   hack/release.sh notes VERSION               print the section of the changelog
#   hack/release.sh check                       build in two folders, compare, verify signatures
#
# COSIGN, KUSTOMIZE and HELM are the paths of the programs. SIGN are the arguments with which
# cosign signs; empty: with the identity of the pipeline. If it is not set, the key
# dist/cosign.key signs, which is made if it does not exist, and nothing is written to a public
# log.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
folder=$root/dist/release

fail() {
	echo "release: $1" >&2
	exit 1
}

# signing sets SIGN.
signing() {
	[ -z "${SIGN+set}" ] || return 0
	export COSIGN_PASSWORD=${COSIGN_PASSWORD:-} SIGN="--tlog-upload=false --key=$root/dist/cosign.key"
	mkdir -p dist
	[ -e dist/cosign.key ] || "$COSIGN" generate-key-pair --output-key-prefix "$root/dist/cosign"
}

build() { # VERSION
	local version=$1 created revision
	[[ $version =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$ ]] ||
		fail "VERSION \"$version\" is not a semantic version with v: use VERSION=v0.1.0, or check out a tag"
	signing
	created=$(git log -1 --format=%ct) revision=$(git rev-parse HEAD)
	rm -rf "$folder"
	mkdir -p "$folder"
	(cd hack/image && go run . -name "ghcr.io/ostiary/ostiary:$version" -version "$version" -created "$created" -revision "$revision" \
		-platforms linux/amd64,linux/arm64 -out "$folder/ostiary.tar")
	(cd hack/krew && go run . -version "$version" -created "$created" -out "$folder" &&
		go tool validate-krew-manifest -skip-install -manifest "$folder/ostiary.yaml")
	"$KUSTOMIZE" build config/default >"$folder/install.yaml"
	"$KUSTOMIZE" build config/self-test >"$folder/self-test.yaml"
	"$KUSTOMIZE" build config/uninstall >"$folder/uninstall.yaml"
	(cd hack/image && go run . release -folder "$folder" -version "$version" -created "$created" -revision "$revision" \
		${BUILDER:+-builder "$BUILDER"} -cosign "$COSIGN" -sign "$SIGN")
}

publish() { # VERSION REGISTRY
	signing
	(cd hack/image && go run . publish -folder "$folder" -version "$1" -registry "$2" -cosign "$COSIGN" -sign "$SIGN")
}

notes() { # VERSION
	local version=${1#v} text
	grep -qxF "version: ${version%%-*}" charts/ostiary/Chart.yaml ||
		fail "charts/ostiary/Chart.yaml has another version than $1: raise it, and the versions in the documents"
	text=$(awk -v section="[$version]" '/^## /{found = $2 == section; next} found' CHANGELOG.md)
	[[ $text =~ [^[:space:]] ]] || fail "CHANGELOG.md has no section [$version]: move the entries of [Unreleased] there"
	echo "$text"
}

check() {
	local version=v0.0.0-check
	other=$(mktemp -d)
	trap 'rm -rf "$other"' EXIT
	build $version
	git clone --quiet "$root" "$other/clone"
	"$other/clone/hack/release.sh" build $version
	diff "$folder/SHA256SUMS" "$other/clone/dist/release/SHA256SUMS"
	(cd "$folder" && sha256sum --check --quiet SHA256SUMS)
	echo "Two builds in different folders have equal checksums; the image has the digest $(grep -o 'sha256:[0-9a-f]*' "$folder/install.yaml")"
	# Both used one build cache. The bill of materials has the checksum of the program.
	(cd hack/image && go build -o "$other/image" .)
	(cd "$other/clone/hack/image" && GOCACHE=$other/cache "$other/image" -version $version -created "$(git log -1 --format=%ct)" -out "$other/ostiary.tar")
	cmp "$other/ostiary.spdx.json" "$folder/ostiary-linux-$(go env GOARCH).spdx.json"
	echo "A build with an empty cache gives the same program"
	(cd hack/image && RELEASE=$folder KEY=$root/dist/cosign go test -count=1 -v -run '^TestSigned$' .)
}

case "${1:-} $#" in
"build 2" | "publish 3" | "notes 2" | "check 1") "$@" ;;
*)
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
