#!/usr/bin/env bash
# Runs the unit tests of crates with unsafe code in Miri, which finds undefined behaviour. The engine's C code runs as a
# library next to them. Miri sees what Rust does with the memory that it shares with C; it does not see what C does.
# Needs a nightly toolchain with Miri: without one, says SKIP.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
	echo "miri: SKIP: rustup toolchain install nightly --component miri --component rust-src" >&2
	exit
fi
target=$PWD/target/miri
miri() { cargo +nightly miri test --quiet --locked --target-dir "$target" --lib "$@"; }

miri --package shunt-xsk --no-run
build=$target/miri/$(rustc -vV | sed -n 's/^host: //p')/debug/build
newest() { find "$build" -name "$1" -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2; }
cc -shared -o "$target/libshunt_c.so" -Wl,--whole-archive \
	"$(newest libshunt_external.a)" "$(newest libshunt_core.a)" -Wl,--no-whole-archive
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-native-lib=$target/libshunt_c.so"
miri --package shunt-xsk
miri --package shunt-bpf -- abi::plain
