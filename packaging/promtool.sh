#!/usr/bin/env bash
# Prints where promtool is: on PATH, or unpacked from Debian's package `prometheus` below target/tools. The package is
# not installed, since that would start a service.
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v promtool; then
	exit
fi
tools=$PWD/target/tools
promtool=$tools/prometheus/usr/bin/promtool
if [[ ! -x $promtool ]]; then
	mkdir -p "$tools"
	download=$(mktemp -d "$tools/download.XXXXXX")
	trap 'rm -rf "$download"' EXIT
	# apt's own user must be able to write there.
	chmod 777 "$download"
	fetch() { (cd "$download" && apt-get download -q prometheus >&2); }
	fetch || { apt-get update -q >&2 && fetch; } || {
		echo "promtool: Debian's package prometheus cannot be downloaded; is there a network?" >&2
		exit 1
	}
	dpkg-deb -x "$download"/prometheus_*.deb "$download/prometheus"
	# Another one may have been faster.
	mv -T "$download/prometheus" "$tools/prometheus" 2>/dev/null || [[ -x $promtool ]]
fi
echo "$promtool"
