#!/usr/bin/env bash
# Runs the cargo of a toolchain that is new enough, wherever it is: cargo.sh ARGUMENTS...
# With --find it only prints which one that is.
set -euo pipefail
least=88 # Cargo.toml: rust-version = "1.88"

minor_version() { { "$1" --version 2>/dev/null || true; } | sed -nE 's/^cargo 1\.([0-9]+)\..*/\1/p'; }

candidates() {
	[[ -z ${CARGO:-} ]] || echo "$CARGO"
	command -v cargo || true
	echo "${HOME:-/root}/.cargo/bin/cargo"
	[[ -z ${SUDO_USER:-} ]] || echo "$(getent passwd "$SUDO_USER" | cut -d: -f6)/.cargo/bin/cargo"
	# Ubuntu names its newer ones by version.
	compgen -c cargo-1. | grep -E '^cargo-1\.[0-9]+$' | sort -rV -u || true
}

found=
while read -r candidate; do
	path=$(command -v "$candidate") || continue
	# rustup's cargo asks rustup's home which toolchain it stands for; under sudo that is not root's.
	home=${path%/.cargo/bin/cargo}
	rustup_home=${RUSTUP_HOME:-}
	if [[ -z $rustup_home && $home != "$path" && -d $home/.rustup ]]; then
		rustup_home=$home/.rustup
	fi
	minor=$(RUSTUP_HOME=$rustup_home minor_version "$path")
	if [[ $minor ]] && ((minor >= least)); then
		found=$path
		[[ -z $rustup_home ]] || export RUSTUP_HOME=$rustup_home
		break
	fi
done < <(candidates)

if [[ -z $found ]]; then
	echo "no cargo of Rust 1.$least or newer; packaging/deps.sh installs one, or see https://rustup.rs" >&2
	exit 1
fi
if [[ ${1:-} == --find ]]; then
	echo "$found"
	exit
fi
name=${found##*/}
if [[ $name == cargo-* && -z ${RUSTC:-} ]]; then
	export RUSTC=${found%/*}/rustc-${name#cargo-} RUSTDOC=${found%/*}/rustdoc-${name#cargo-}
fi
status=0
"$found" "$@" || status=$?
# What sudo built belongs to who called it, or the next build without sudo fails.
if ((EUID == 0)) && [[ ${SUDO_UID:-} && -d target ]]; then
	chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" target
fi
exit "$status"
