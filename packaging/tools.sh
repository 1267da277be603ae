#!/usr/bin/env bash
# Prints the directory with the tools of `make lint` and `make test` that come as Python packages. The first call
# installs them, at the versions of tools.txt, below the user's cache directory.
set -euo pipefail
list=$(dirname "$0")/tools.txt
tools=${XDG_CACHE_HOME:-$HOME/.cache}/shunt/tools/$(sha256sum "$list" | cut -c -12)

if [[ ! -e $tools/installed ]]; then
	python3 -m venv --clear "$tools" >&2
	"$tools/bin/pip" install --quiet --disable-pip-version-check -r "$list" >&2
	touch "$tools/installed"
fi
echo "$tools/bin"
