#!/usr/bin/env bash
# Prints where promtool is: on PATH, or unpacked below target/tools from a package of the distribution, which is not
# installed: `prometheus` would start a service.
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v promtool; then
	exit
fi
tools=$PWD/target/tools
promtool=$tools/promtool/usr/bin/promtool
if [[ ! -x $promtool ]]; then
	mkdir -p "$tools"
	download=$(mktemp -d "$tools/download.XXXXXX")
	trap 'rm -rf "$download"' EXIT
	# apt's own user must be able to write there.
	chmod 777 "$download"
	cd "$download"
	# A package of its own since Debian 13, in that of Prometheus before.
	fetch() { apt-get download -q promtool >&2 || apt-get download -q prometheus >&2; }
	fetch || { apt-get update -q >&2 && fetch; } || {
		echo "promtool: the package promtool or prometheus cannot be downloaded; is there a network?" >&2
		exit 1
	}
	dpkg-deb -x ./*.deb unpacked
	[[ -x unpacked/usr/bin/promtool ]] || {
		echo "promtool: there is none in $(echo ./*.deb)" >&2
		exit 1
	}
	# Another one may have been faster.
	mv -T unpacked "$tools/promtool" 2>/dev/null || [[ -x $promtool ]]
fi
echo "$promtool"
