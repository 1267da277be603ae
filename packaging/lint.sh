#!/usr/bin/env bash
# Checks what needs no root and no test: formats, lints, documentation, dependencies and spelling. Every check runs, and
# the script fails if one of them did: lint.sh [CHECK ...], where CHECK is a function below, such as `lint.sh spelling`.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=packaging/cargo.sh
tools=$(packaging/tools.sh)

rust_format() { "$cargo" fmt --all --check; }

c_format() {
	git ls-files -z '*.c' '*.h' | xargs -0 "$tools/clang-format" --dry-run --Werror
}

# Lines of Markdown and comments have at most 120 columns.
columns() {
	git ls-files -z '*.md' '*.rs' '*.c' '*.h' '*.sh' '*.toml' '*.yml' Makefile .ci/run | LC_ALL=C xargs -0 awk -f packaging/columns.awk
}

lints() { "$cargo" clippy --quiet --locked --workspace --all-targets -- --deny warnings; }

documentation() { RUSTDOCFLAGS="--deny warnings" "$cargo" doc --quiet --locked --workspace --no-deps; }

# Advisories come from a repository that not every machine reaches: there, the check says so and is left out.
dependencies() {
	local deny=$tools/cargo-deny
	# A check runs where the shell does not stop at the first failure.
	"$deny" --log-level error check --hide-inclusion-graph bans licenses sources || return
	if "$deny" --log-level error fetch db 2>/dev/null; then
		"$deny" --log-level error check --disable-fetch --hide-inclusion-graph advisories
	else
		echo "lint: SKIP advisories: cannot fetch the RustSec advisory database" >&2
	fi
}

# Warnings and errors; scripts for OpenWrt are run by busybox.
shell() {
	local scripts=('*.sh' .ci/run 'packaging/deb/p*' packaging/openwrt/p* packaging/openwrt/stand-ins
		packaging/openwrt/files/etc/init.d packaging/openwrt/files/etc/hotplug.d packaging/openwrt/files/usr/libexec)
	git ls-files -z "${scripts[@]}" | xargs -0 "$tools/shellcheck" --severity warning
}

spelling() { "$tools/typos" --format brief; }

checks=("$@")
((${#checks[@]})) || checks=(rust_format c_format columns shell spelling lints documentation dependencies)
failed=()
for check in "${checks[@]}"; do
	if ! declare -F "$check" >/dev/null; then
		echo "lint: no check named $check" >&2
		exit 2
	fi
	echo "lint: $check" >&2
	("$check") || failed+=("$check")
done
if ((${#failed[@]})); then
	echo "lint: failed: ${failed[*]}" >&2
	exit 1
fi
