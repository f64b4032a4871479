#!/bin/sh
# Puts prometheus and promtool into a folder: links to those of the machine, or
# those of Debian's package, which is unpacked and not installed, so that no
# service starts. Only the list of packages, where there is none, needs root.
set -eu

to=$1
[ -x "$to/prometheus" ] && [ -x "$to/promtool" ] && exit 0
mkdir -p "$to"
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
	ln -sf "$(command -v prometheus)" "$(command -v promtool)" "$to"
	exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
	echo "prometheus.sh: install prometheus and promtool, so that they are in PATH" >&2
	exit 1
fi
echo "Unpacking Prometheus from its Debian package (once)"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
download() { (cd "$scratch" && apt-get -qq download prometheus 2>"$scratch/errors"); }
download || { apt-get -qq update && download; } || {
	cat "$scratch/errors" >&2
	exit 1
}
dpkg-deb -x "$scratch"/prometheus_*.deb "$scratch/unpacked"
cp "$scratch/unpacked/usr/bin/prometheus" "$scratch/unpacked/usr/bin/promtool" "$to"
