#!/usr/bin/env bash
# Prints the directory with cargo-auditable, which writes the list of a program's crates into the program. The first
# call builds it below the user's cache directory, in about a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.7.7
tools=${XDG_CACHE_HOME:-$HOME/.cache}/shunt/tools/cargo-auditable-$version
if [[ ! -x $tools/bin/cargo-auditable ]]; then
	packaging/cargo.sh install --quiet --locked --version "$version" --root "$tools" cargo-auditable >&2
fi
echo "$tools/bin"
