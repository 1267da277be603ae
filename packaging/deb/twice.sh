#!/usr/bin/env bash
# Builds the Debian package from the last commit in two folders, and compares the packages: twice.sh ARCHITECTURE. If
# this tree is as its last commit, it is the first folder, and what is built in it already is not built again. Each
# further folder is new, and takes as long as a first `make deb`.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=${1:?usage: twice.sh ARCHITECTURE}

commit=$(git rev-parse HEAD)
work=$(mktemp -d "${TMPDIR:-/tmp}/shunt-twice.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Builds the package in a tree, and keeps it as NAME.deb: package NAME TREE
package() {
	local built
	# Make prints the commands first, and xtask the path of the package last.
	built=$(make -C "$2" --no-print-directory deb ARCH="$arch" | tail -n 1)
	cp "$built" "$work/$1.deb"
}
fresh() {
	local folder=$work/$2
	mkdir -p "${folder%/*}"
	git clone --quiet --no-hardlinks . "$folder"
	git -C "$folder" checkout --quiet "$commit"
	# A build in a folder of its own must not find the target directory of this one.
	(unset CARGO_TARGET_DIR && package "$1" "$folder")
	rm -rf "$folder"
}
if [[ -z $(git status --porcelain) ]]; then
	package one .
else
	echo "deb-twice: this tree has changes that are in no commit, so both folders are new" >&2
	fresh one one
fi
fresh another another/folder
cd "$work"
sha256sum one.deb another.deb
if cmp one.deb another.deb; then
	echo "deb-twice: both packages have the same bytes"
	exit
fi
echo "deb-twice: the packages differ in:" >&2
for name in one another; do
	dpkg-deb --raw-extract $name.deb $name
done
diff -rq one another >&2 || true
trap - EXIT
echo "deb-twice: both are kept in $work, unpacked; remove it after comparing them" >&2
exit 1
