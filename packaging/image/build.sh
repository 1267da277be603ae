#!/usr/bin/env bash
# Makes a disk image of a router with Shunt: build.sh PACKAGE [NAME=VALUE ...]
#
# PACKAGE is the Debian package of Shunt, whose architecture is that of the image. Needs no privileges where the user
# has subordinate IDs (/etc/subuid). Settings:
#   MIRROR=URL       of Debian's packages        SIZE=2G          of the disk; it may be copied to a larger one
#   SUITE=NAME       of Debian                   KERNEL=PACKAGE   for example linux-image-cloud-amd64 for guests
#   PACKAGES="..."   more packages, such as firmware
#   SSH_KEY=FILE     a public key for root: with it, the image has an ssh server
set -euo pipefail
here=$(dirname "$(readlink -e "$0")")

die() {
	echo "image: $*" >&2
	exit 1
}
package=$(readlink -e "${1:?usage: build.sh PACKAGE [NAME=VALUE ...]}") || die "$1 does not exist; make deb builds it"
shift
MIRROR=http://deb.debian.org/debian SUITE=trixie SIZE=2G KERNEL='' PACKAGES='' SSH_KEY=''
for setting in "$@"; do
	case $setting in
	MIRROR=* | SUITE=* | SIZE=* | KERNEL=* | PACKAGES=* | SSH_KEY=*) declare "${setting%%=*}=${setting#*=}" ;;
	*) die "what is $setting? There are MIRROR, SUITE, SIZE, KERNEL, PACKAGES and SSH_KEY" ;;
	esac
done
for need in mmdebstrap:mmdebstrap mke2fs:e2fsprogs sfdisk:fdisk mformat:mtools dpkg-deb:dpkg; do
	PATH=$PATH:/usr/sbin:/sbin command -v "${need%:*}" >/dev/null ||
		die "${need%:*} is missing; packaging/deps.sh --image installs it (package ${need#*:})"
done
PATH=$PATH:/usr/sbin:/sbin
[[ -z $SSH_KEY || -r $SSH_KEY ]] || die "SSH_KEY=$SSH_KEY cannot be read"

arch=$(dpkg-deb --field "$package" Architecture)
version=$(dpkg-deb --field "$package" Version)
# The name of the boot loader is that which firmware looks for on a disk (UEFI 3.5.1.1).
case $arch in
amd64) loader=systemd-bootx64.efi removable=BOOTX64.EFI serial=ttyS0,115200 ;;
arm64) loader=systemd-bootaa64.efi removable=BOOTAA64.EFI serial=ttyAMA0,115200 ;;
*) die "no image for $arch: its boards have no UEFI; docs/guide/other-architectures.md says how to install there" ;;
esac
if [[ $arch != "$(dpkg --print-architecture)" ]]; then
	command -v arch-test >/dev/null || die "arch-test is missing, which mmdebstrap asks whether $arch can run here; install it"
	arch-test "$arch" >/dev/null ||
		die "an image for $arch runs programs for $arch: install qemu-user-static, and have the kernel run it for them" \
			"(systemd-binfmt or binfmt-support), or build the image on such a machine"
fi
: "${KERNEL:=linux-image-$arch}"

bytes=$(numfmt --from=iec "$SIZE") || die "SIZE=$SIZE is no size"
((bytes >= 1 << 30)) || die "SIZE=$SIZE is too small: the system takes about 900 MB"
into=$here/../../target/image
mkdir -p "$into"
into=$(readlink -e "$into")
image=$into/shunt-router-$version-$arch.img
free=$(($(stat --file-system --format '%a * %S' "$into")))
# The archive, the file system and the image, of which the last two are sparse.
((free > 3 * (1 << 30))) || die "$into has $((free >> 20)) MB of free space, but an image needs 3 GB"
scratch=$(mktemp -d "$into/build.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# 1. The system: Debian's packages, Shunt's, and the files of root/.
cp -r "$here/root" "$scratch/root"
sed -i "s/@SERIAL@/$serial/" "$scratch/root/etc/kernel/cmdline"
if [[ -n $SSH_KEY ]]; then
	PACKAGES+=" openssh-server"
	install -D -m 600 "$SSH_KEY" "$scratch/root/root/.ssh/authorized_keys"
fi
include=(
	"$KERNEL" initramfs-tools zstd kmod systemd-sysv systemd-boot systemd-boot-efi systemd-repart systemd-resolved
	systemd-timesyncd udev dbus login
	nftables dnsmasq conntrack ethtool iproute2 iperf3 iputils-ping tcpdump curl less nano ca-certificates
)
mode=auto
((EUID != 0)) || mode=root
# Before it installs packages, apt looks for questions of debconf in each of them. Nobody answers here, and under
# emulation that takes minutes.
unasked=/etc/apt/apt.conf.d/98unasked
mmdebstrap --quiet --mode=$mode --variant=apt --architectures="$arch" \
	--include="${include[*]} $PACKAGES" \
	--aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-include=/usr/share/man/man?/shunt*' \
	--essential-hook="echo '#clear DPkg::Pre-Install-Pkgs;' >\"\$1$unasked\"" \
	--customize-hook="rm \"\$1$unasked\"" \
	--customize-hook="sync-in '$scratch/root' /" \
	--customize-hook="upload '$package' /tmp/shunt.deb" \
	--customize-hook="upload '$here/customize.sh' /tmp/customize.sh" \
	--customize-hook='chroot "$1" sh /tmp/customize.sh' \
	"$SUITE" "$scratch/system.tar" \
	"deb $MIRROR $SUITE main non-free-firmware" "deb $MIRROR $SUITE-updates main non-free-firmware"

# 2. The partition of the boot loader, with the kernel and its initramfs in files that updates of the kernel replace.
esp_mib=256
mkdir "$scratch/boot"
tar -C "$scratch/boot" -xf "$scratch/system.tar" --wildcards './boot/*' "./usr/lib/systemd/boot/efi/$loader"
release=$(cd "$scratch/boot/boot" && echo vmlinuz-*)
release=${release#vmlinuz-}
truncate -s ${esp_mib}M "$scratch/esp"
mformat -i "$scratch/esp" -F -v SHUNT-EFI ::
mmd -i "$scratch/esp" ::/EFI ::/EFI/BOOT ::/EFI/systemd ::/loader ::/loader/entries ::/shunt "::/shunt/$release"
mcopy -i "$scratch/esp" "$scratch/boot/usr/lib/systemd/boot/efi/$loader" "::/EFI/BOOT/$removable"
mcopy -i "$scratch/esp" "$scratch/boot/usr/lib/systemd/boot/efi/$loader" ::/EFI/systemd/
mcopy -i "$scratch/esp" "$scratch/boot/boot/vmlinuz-$release" "::/shunt/$release/linux"
mcopy -i "$scratch/esp" "$scratch/boot/boot/initrd.img-$release" "::/shunt/$release/initrd.img-$release"
printf 'timeout 2\n' | mcopy -i "$scratch/esp" - ::/loader/loader.conf
mcopy -i "$scratch/esp" - "::/loader/entries/shunt-$release.conf" <<END
title      Router with Shunt
version    $release
sort-key   debian
options    $(cat "$scratch/root/etc/kernel/cmdline")
linux      /shunt/$release/linux
initrd     /shunt/$release/initrd.img-$release
END

# 3. The root file system, with the owners that the archive has.
as_owner=()
((EUID == 0)) || as_owner=(mmdebstrap --unshare-helper)
root_mib=$(((bytes >> 20) - esp_mib - 2))
"${as_owner[@]}" sh -euc '
	mkdir "$1/system"
	tar -C "$1/system" --numeric-owner --xattrs --xattrs-include="*" -xf "$1/system.tar"
	rm "$1/system.tar"
	mke2fs -q -t ext4 -L shunt-root -d "$1/system" "$1/ext4" "$2"
	rm -rf "$1/system"
' sh "$scratch" "${root_mib}M"

# 4. The disk.
truncate -s "$bytes" "$scratch/disk"
sfdisk --quiet "$scratch/disk" <<END
label: gpt
start=1MiB, size=${esp_mib}MiB, type=uefi, name=efi
start=$((esp_mib + 1))MiB, size=${root_mib}MiB, type=linux-root-$([[ $arch == amd64 ]] && echo x86-64 || echo arm-64), name=root
END
dd if="$scratch/esp" of="$scratch/disk" bs=1M seek=1 conv=notrunc,sparse status=none
dd if="$scratch/ext4" of="$scratch/disk" bs=1M seek=$((esp_mib + 1)) conv=notrunc,sparse status=none
mv "$scratch/disk" "$image"
echo "$image"
