#!/usr/bin/env bash
# Builds the Debian package from the last commit in two new folders, and compares the packages: twice.sh ARCHITECTURE.
# Each build takes as long as a first `make deb`.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=${1:?usage: twice.sh ARCHITECTURE}

commit=$(git rev-parse HEAD)
work=$(mktemp -d "${TMPDIR:-/tmp}/shunt-twice.XXXXXX")
trap 'rm -rf "$work"' EXIT
for folder in one another/folder; do
	mkdir -p "$work/$(dirname "$folder")"
	git clone --quiet --no-hardlinks . "$work/$folder"
	git -C "$work/$folder" checkout --quiet "$commit"
	# A build in a folder of its own must not find the target directory of this one.
	env -u CARGO_TARGET_DIR make -C "$work/$folder" --no-print-directory deb ARCH="$arch"
	rm -rf "$work/$folder/target/release" "$work/$folder/target/debug"
done
cd "$work"
sha256sum one/target/deb/*.deb another/folder/target/deb/*.deb
if cmp one/target/deb/*.deb another/folder/target/deb/*.deb; then
	echo "deb-twice: both packages have the same bytes"
	exit
fi
echo "deb-twice: the packages differ in:" >&2
for folder in one another/folder; do
	mkdir -p "$folder/unpacked"
	dpkg-deb --raw-extract "$folder"/target/deb/*.deb "$folder/unpacked"
done
diff -rq one/unpacked another/folder/unpacked >&2 || true
trap - EXIT
echo "deb-twice: both are kept in $work, unpacked; remove it after comparing them" >&2
exit 1
