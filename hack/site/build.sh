#!/bin/sh
# Builds the documentation site into dist/site, for the path BASE, and checks its links and
# pages. The packages of hack/site/package-lock.json are installed into bin/site once.
#
#   hack/site/build.sh [BASE]
set -eu
cd "$(dirname "$0")/../.."
if ! command -v npm >/dev/null; then
	echo "site: install Node.js 18 or later with npm (Debian: apt-get install nodejs npm)" >&2
	exit 1
fi
mkdir -p bin/site
cp -R hack/site/. bin/site/
cd bin/site
lock=$(cksum <package-lock.json)
if [ "$(cat node_modules/.installed 2>/dev/null)" != "$lock" ]; then
	echo "Installing the packages of the site (once)"
	npm ci --no-update-notifier --loglevel=error
	echo "$lock" >node_modules/.installed
fi
node --test check.test.mjs >tests.log || { cat tests.log >&2; exit 1; }
echo "Building the site"
node build.mjs ../.. ../../dist/site "${1:-/}"
