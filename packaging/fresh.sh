#!/usr/bin/env bash
# Builds, demonstrates and tests Shunt on fresh machines, by what README says: fresh.sh SUITE [TARGET ...]
#
# SUITE is bookworm, trixie (Debian 12 and 13) or noble (Ubuntu 24.04); the targets are those of make, by default `demo`
# and `test`. A fresh machine is a minimal root in target/fresh/SUITE with make and git, with a clone of this
# repository's HEAD; the kernel is this machine's. Mounts and processes end with the script; the root stays for a look
# until the next run or `make clean`.
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
	echo "fresh: $*" >&2
	exit 1
}
suite=${1:?usage: fresh.sh SUITE [TARGET ...]}
shift
targets=("$@")
((${#targets[@]})) || targets=(demo test)
case $suite in
bookworm | trixie)
	sources=("deb http://deb.debian.org/debian $suite main"
		"deb http://deb.debian.org/debian $suite-updates main"
		"deb http://deb.debian.org/debian-security $suite-security main")
	;;
noble)
	# Packages of another distribution are signed by keys that this machine may not have.
	sources=("deb [trusted=yes] http://archive.ubuntu.com/ubuntu $suite main universe"
		"deb [trusted=yes] http://archive.ubuntu.com/ubuntu $suite-updates main universe")
	;;
*) die "there is bookworm, trixie and noble, and not $suite" ;;
esac
root=$PWD/target/fresh/$suite
end_processes() {
	local process
	for process in /proc/[0-9]*; do
		[[ ! $process/root/. -ef $root ]] || kill -KILL "${process#/proc/}" || true
	done
}
if [[ ${SHUNT_FRESH:-} != inside ]]; then
	((EUID == 0)) || die "a chroot and network namespaces need root: sudo make fresh-test"
	command -v mmdebstrap >/dev/null || die "mmdebstrap is missing; packaging/deps.sh --image installs it"
	# A root that is half made, or of an earlier run, is no fresh machine.
	rm -rf --one-file-system "$root"
	mkdir -p "${root%/*}"
	mmdebstrap --quiet --variant=minbase --include=apt,make,git "$suite" "$root" "${sources[@]}"
	export SHUNT_FRESH=inside
	# In the machine's PID namespace, from which the kernel's threads are seen: the demo reads their CPU time.
	unshare --mount --propagation private "$(readlink -e "$0")" "$suite" "${targets[@]}" &
	trap 'exit 130' INT TERM
	trap end_processes EXIT
	wait $!
	exit
fi

mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
[[ ! -d /sys/fs/bpf ]] || mount -t bpf bpf "$root/sys/fs/bpf"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# Behind a proxy with certificates of its own, SSL_CERT_FILE has them.
certificates=()
if [[ ${SSL_CERT_FILE:-} ]]; then
	cp "$SSL_CERT_FILE" "$root/root/certificates.crt"
	for name in SSL_CERT_FILE CARGO_HTTP_CAINFO CURL_CA_BUNDLE PIP_CERT; do
		certificates+=("$name=/root/certificates.crt")
	done
fi
# Where other users can read it, too: some tests run the programs as one of them.
git clone --quiet --no-hardlinks . "$root/home/shunt"
# The root of the whole mount namespace: who enters it again, as tests do, would leave a mere chroot.
cd "$root"
mount --move . /

for target in "${targets[@]}"; do
	begun=$SECONDS
	echo "fresh: $suite: make $target" >&2
	chroot . env --ignore-environment HOME=/root TERM=dumb "${certificates[@]}" \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin make -C /home/shunt "$target" ||
		die "$suite: make $target failed after $((SECONDS - begun)) s"
	echo "fresh: $suite: make $target: passed in $((SECONDS - begun)) s" >&2
done
