#!/usr/bin/env bash
# Checks what needs no root and no test: formats, lints, documentation, dependencies, spelling and generated files.
# Every check runs, and the script fails if one of them did. The checkers are installed at pinned versions below the
# user's cache directory: lint.sh [CHECK ...], where CHECK is a function below, e.g. `lint.sh spelling`.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=packaging/cargo.sh
requirements=packaging/lint-requirements.txt
cargo_deny=0.18.5
cache=${XDG_CACHE_HOME:-$HOME/.cache}/shunt/lint

# Prints the directory with clang-format and typos, which it makes at the first call.
python_tools() {
	local venv
	venv=$cache/$(sha256sum "$requirements" | cut -c -12)
	if [[ ! -e $venv/installed ]]; then
		python3 -m venv --clear "$venv" >&2
		"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
		touch "$venv/installed"
	fi
	echo "$venv/bin"
}

# Prints the path of cargo-deny, which it builds at the first call: that takes some minutes.
deny_program() {
	local root=$cache/cargo-deny-$cargo_deny
	if [[ ! -x $root/bin/cargo-deny ]]; then
		echo "lint: building cargo-deny $cargo_deny" >&2
		"$cargo" install --quiet --locked --version "$cargo_deny" --root "$root" cargo-deny >&2
	fi
	echo "$root/bin/cargo-deny"
}

rust_format() { "$cargo" fmt --all --check; }

c_format() {
	local bin
	bin=$(python_tools)
	git ls-files -z '*.c' '*.h' | xargs -0 "$bin/clang-format" --dry-run --Werror
}

lints() { "$cargo" clippy --quiet --locked --workspace --all-targets -- --deny warnings; }

documentation() { RUSTDOCFLAGS="--deny warnings" "$cargo" doc --quiet --locked --workspace --no-deps; }

# Advisories come from a repository that not every machine reaches: there, the check says so and is left out.
dependencies() {
	local deny
	deny=$(deny_program)
	# A check runs where the shell does not stop at the first failure.
	"$deny" --log-level error check --hide-inclusion-graph bans licenses sources || return
	if "$deny" --log-level error fetch db 2>/dev/null; then
		"$deny" --log-level error check --disable-fetch --hide-inclusion-graph advisories
	else
		echo "lint: SKIP advisories: cannot fetch the RustSec advisory database" >&2
	fi
}

spelling() {
	local bin
	bin=$(python_tools)
	"$bin/typos" --format brief
}

# Manual pages, docs/reasons.md, docs/openapi.json, docs/performance.md; each failure says how to rewrite the file.
generated() { "$cargo" test --quiet --locked -p shunt -p shuntd -p xtask -- is_current are_current; }

checks=("$@")
((${#checks[@]})) || checks=(rust_format c_format spelling lints documentation dependencies generated)
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
