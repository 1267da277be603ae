#!/usr/bin/env bash
# Installs what building, testing, demo and bench need, from the distribution, where it is missing. Debian 12, Debian 13
# and Ubuntu 24.04; elsewhere it only says what is missing. With --vm also what `cargo xtask vm` needs to boot other
# kernels and boards, with --cross what `make dist` needs to build for other architectures, with --image what `make
# image` needs to make and boot a disk (--image=arm64: one for arm64), with --proof what `cargo xtask prove` needs to
# check the packet core, with --pair the daemons that tests of several routers run; none of them is started.
# --std=TARGET only has rustup fetch the standard library of a target of Rust.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ ${1:-} == --std=* ]]; then
	# A toolchain of the distribution has packages instead, which xtask names. Within cargo, CARGO is the program of
	# the toolchain, without rustup next to it.
	rustup=$(dirname "$(env -u CARGO packaging/cargo.sh --find)")/rustup
	[[ ! -x $rustup ]] || exec "$rustup" --quiet target add "${1#*=}"
	exit 1
fi
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

command_is_there() { command -v "$1" >/dev/null; }
header_is_there() { echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; }
file_is_there() { [[ -e $1 ]]; }
module_is_there() { python3 -c "import $1" 2>/dev/null; }

# What is asked for, and the package that has it. The compiler comes before the headers it looks for.
# xtask/tests/programs.rs checks that every program that tests start is here.
needs=(
	command:cc=gcc
	command:clang=clang
	command:llvm-strip=llvm
	command:make=make
	command:pkg-config=pkg-config
	header:stdio.h=libc6-dev
	header:bpf/bpf_helpers.h=libbpf-dev
	header:libelf.h=libelf-dev
	header:zlib.h=zlib1g-dev
	command:ip=iproute2
	command:bridge=iproute2
	command:ss=iproute2
	command:tc=iproute2
	command:nft=nftables
	command:iptables-nft=iptables
	command:iptables-legacy=iptables
	command:ip6tables-legacy=iptables
	command:conntrack=conntrack
	command:ethtool=ethtool
	command:iperf3=iperf3
	command:ping=iputils-ping
	command:tcpdump=tcpdump
	command:sysctl=procps
	command:chrt=util-linux
	command:curl=curl
	command:python3=python3
	module:ensurepip=python3-venv
	file:/etc/ssl/certs/ca-certificates.crt=ca-certificates
)

vm=0 cross=0 image=0 arm64=0 proof=0 pair=0
for option in "$@"; do
	case $option in
	--vm) vm=1 ;;
	--cross) cross=1 ;;
	--image) image=1 ;;
	--image=arm64) image=1 arm64=1 ;;
	--image=*) image=1 ;;
	--proof) proof=1 ;;
	--pair) pair=1 ;;
	*) echo "deps: what is $option?" >&2 && exit 1 ;;
	esac
done
if ((vm)); then
	needs+=(
		command:qemu-system-aarch64=qemu-system-arm
		command:qemu-system-arm=qemu-system-arm
		command:qemu-system-x86_64=qemu-system-x86
		command:depmod=kmod
		command:ipvsadm=ipvsadm
		command:modprobe=kmod
		command:xz=xz-utils
		command:strip=binutils
		command:setpriv=util-linux
		command:wg=wireguard-tools
		command:stty=coreutils
		file:/usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring
	)
fi
if ((cross)); then
	# gcc for other architectures would drive gcc-multilib out. Headers and libraries come unpacked:
	# xtask/src/dist.rs.
	needs+=(
		command:ld.lld=lld
		command:ar=binutils
		command:readelf=binutils
		command:busybox=busybox-static
		command:xz=xz-utils
		file:/usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring
	)
fi
if ((image)); then
	needs+=(
		command:mmdebstrap=mmdebstrap
		command:systemd-nspawn=systemd-container
		command:mke2fs=e2fsprogs
		command:sfdisk=fdisk
		command:mformat=mtools
		command:dpkg-deb=dpkg
		command:qemu-system-x86_64=qemu-system-x86
		command:qemu-img=qemu-utils
		command:busybox=busybox-static
		file:/usr/share/OVMF/OVMF_CODE_4M.fd=ovmf
		file:/usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring
	)
fi
if ((arm64)); then
	needs+=(
		command:qemu-system-aarch64=qemu-system-arm
		file:/usr/share/AAVMF/AAVMF_CODE.fd=qemu-efi-aarch64
	)
	# Programs of the new system run while it is made.
	[[ $(uname -m) == aarch64 ]] || needs+=(command:arch-test=arch-test command:qemu-aarch64-static=qemu-user-static)
fi
if ((proof)); then
	needs+=(command:timeout=coreutils)
	# Debian 12 has none, and Ubuntu 24.04 has version 5: there, xtask unpacks that of Debian 13.
	if [[ $(apt-cache policy cbmc 2>/dev/null | sed -n 's/^  Candidate: *//p') == [6-9].* ]]; then
		needs+=(command:cbmc=cbmc)
	else
		needs+=(
			command:dpkg-deb=dpkg
			file:/usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring
		)
	fi
fi

if ((pair)); then
	PATH=$PATH:/usr/lib/frr
	needs+=(
		command:conntrackd=conntrackd
		command:keepalived=keepalived
		command:nsenter=util-linux
		command:ospfd=frr
		command:vtysh=frr
		command:zebra=frr
	)
fi

missing=()
for need in "${needs[@]}"; do
	question=${need%=*}
	"${question%%:*}_is_there" "${question#*:}" || missing+=("${need#*=}")
done

toolchain_missing=0
packaging/cargo.sh --find >/dev/null 2>&1 || toolchain_missing=1
if ((${#missing[@]} == 0 && toolchain_missing == 0)); then
	exit 0
fi

as_root=()
if ((EUID != 0)); then
	as_root=(sudo)
fi
say_and_fail() {
	echo "deps: $1" >&2
	((${#missing[@]} == 0)) || echo "deps: missing (by their Debian names): ${missing[*]}" >&2
	((toolchain_missing == 0)) || echo "deps: missing: Rust 1.88 or newer, e.g. from https://rustup.rs" >&2
	exit 1
}

command_is_there apt-get || say_and_fail "this distribution has no apt-get; install what is missing by hand"
if ((EUID != 0)) && ! command_is_there sudo; then
	say_and_fail "installing needs root"
fi

"${as_root[@]}" apt-get update -q
if ((toolchain_missing)); then
	# Debian 12 keeps a current toolchain for browsers, Ubuntu one package for each version.
	versioned=$(apt-cache pkgnames cargo-1. | grep -E '^cargo-1\.[0-9]+$' | sort -V | tail -n 1 || true)
	candidate() { apt-cache policy "$1" | sed -n 's/^  Candidate: *//p' | grep -v none || true; }
	if [[ $(candidate cargo-web) ]]; then
		missing+=(rustc-web cargo-web)
	elif dpkg --compare-versions "$(candidate rustc)" ge 1.88; then
		missing+=(rustc cargo)
	elif [[ $versioned ]] && dpkg --compare-versions "${versioned#cargo-}" ge 1.88; then
		missing+=("rustc-${versioned#cargo-}" "$versioned")
	else
		say_and_fail "this distribution has no Rust 1.88"
	fi
fi
# Debian starts the services of a package when it is installed. Those of --pair are for tests only.
services=()
if ((pair)) && [[ -d /run/systemd/system ]]; then
	for service in conntrackd frr keepalived; do
		[[ " ${missing[*]} " != *" $service "* ]] || services+=("$service.service")
	done
fi
if ((${#services[@]})); then
	"${as_root[@]}" systemctl --runtime mask "${services[@]}"
fi
leave_stopped() {
	((${#services[@]})) || return 0
	"${as_root[@]}" systemctl disable "${services[@]}" || true
	"${as_root[@]}" systemctl --runtime unmask "${services[@]}"
}
trap leave_stopped EXIT

echo "deps: installing ${missing[*]}"
# --no-remove: a toolchain that is already there and too old may stand in the way, and it is not ours to remove.
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
	apt-get install -q -y --no-install-recommends --no-remove "${missing[@]}" ||
	say_and_fail "apt-get could not install them"
packaging/cargo.sh --find >/dev/null
