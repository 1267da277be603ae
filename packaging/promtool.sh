#!/usr/bin/env bash
# Prints where promtool is, with prometheus beside it: on PATH, or unpacked below target/tools. The distribution's
# packages are not installed, since that would start a service.
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
	fetch() { apt-get download -q "$1" >&2; }
	fetch prometheus || { apt-get update -q >&2 && fetch prometheus; } || {
		echo "promtool: the package prometheus cannot be downloaded; is there a network?" >&2
		exit 1
	}
	dpkg-deb -x prometheus_*.deb unpacked
	# A package of its own since Debian 13.
	if [[ ! -x unpacked/usr/bin/promtool ]]; then
		fetch promtool
		dpkg-deb -x promtool_*.deb unpacked
	fi
	# Another one may have been faster.
	mv -T unpacked "$tools/promtool" 2>/dev/null || [[ -x $promtool ]]
fi
echo "$promtool"
