#!/usr/bin/env bash
# Installs, starts, upgrades and removes the packages for OpenWrt: check.sh IPK [APK]
#
# No root file system of OpenWrt is used. One is put together from busybox and the scripts of stand-ins, which take the
# place of rc.common, procd and the functions for UCI. opkg is replaced by a few functions here. If an apk is given, the
# program apk (or APK) installs it. Network and processes are the check's own, so nothing of the machine changes.
set -euo pipefail

die() {
	echo "openwrt-check: $*" >&2
	[[ ! -e ${root:-}/tmp/log.txt ]] || tail -n 20 "$root/tmp/log.txt" >&2
	exit 1
}
ipk=$(readlink -e "${1:?usage: check.sh IPK [APK]}") || die "$1 does not exist"
package=${2:-}
[[ -z $package ]] || package=$(readlink -e "$package") || die "$2 does not exist"
if [[ ${SHUNT_OPENWRT_CHECK:-} != inside ]]; then
	((EUID == 0)) || die "a chroot and network namespaces need root: sudo make openwrt-check"
	busybox=$(command -v busybox) || die "busybox is missing; packaging/deps.sh --cross installs it"
	export SHUNT_OPENWRT_CHECK=inside BUSYBOX=$busybox
	script=$(readlink -e "$0")
	exec unshare --mount --propagation private --net --pid --fork --kill-child --mount-proc "$script" "$ipk" ${package:+"$package"}
fi
here=$(dirname "$(readlink -e "$0")")
traffic=$here/../deb/traffic.py

work=/mnt
mount -t tmpfs tmpfs "$work"
root=$work/root
mkdir -p "$root"/{bin,dev,etc/config,etc/rc.d,etc/init.d,lib,overlay,proc,sbin,sys,tmp/run,usr/bin,usr/sbin}
# As OpenWrt has it, and there is no /run.
ln -s /tmp "$root/var"
cp "$BUSYBOX" "$root/bin/busybox"
chroot "$root" /bin/busybox --install -s /bin
install -m 755 "$here/stand-ins/rc.common" "$root/etc/rc.common"
install -m 644 "$here/stand-ins/functions.sh" "$root/lib/functions.sh"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs /run
unset SHUNT_RUNTIME_DIR SHUNT_STATE_DIR
in_root() { chroot "$root" /bin/busybox env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

# opkg: installs the package in a directory, with the scripts and the treatment of conffiles that opkg has.
unpack() {
	rm -rf "$2"
	mkdir -p "$2/control" "$2/data"
	tar -xzf "$1" -C "$2"
	tar -xzf "$2/control.tar.gz" -C "$2/control"
	tar -xzf "$2/data.tar.gz" -C "$2/data"
}
run_script() {
	local upgrade=$1 script=$2
	cp "$work/package/control/$script" "$root/tmp/$script"
	in_root PKG_UPGRADE="$upgrade" "/tmp/$script"
}
sums=$work/conffiles
put_files() {
	local file
	(cd "$work/package/data" && find . ! -type d) >"$work/files"
	while read -r file; do
		if grep -qx "${file#.}" "$work/package/control/conffiles" && [[ -e $root/$file && -e $sums ]] &&
			[[ $(sha256sum <"$root/$file") != "$(cat "$sums")" ]]; then
			cp -a "$work/package/data/$file" "$root/$file-opkg"
			continue
		fi
		mkdir -p "$root/$(dirname "$file")"
		# A file that runs is replaced, not written to.
		rm -f "$root/$file"
		cp -a "$work/package/data/$file" "$root/$file"
	done <"$work/files"
	sha256sum <"$work/package/data/etc/config/shunt" >"$sums"
}
install_package() {
	unpack "$1" "$work/package"
	run_script 0 preinst && put_files && run_script 0 postinst
}
upgrade_package() {
	run_script 1 prerm
	unpack "$1" "$work/package"
	run_script 1 preinst && put_files && run_script 1 postinst
}
remove_package() {
	local file
	run_script 0 prerm
	while read -r file; do
		if grep -qx "${file#.}" "$work/package/control/conffiles" && [[ $(sha256sum <"$root/$file") != "$(cat "$sums")" ]]; then
			continue
		fi
		rm -f "$root/$file"
	done <"$work/files"
	(cd "$work/package/data" && find . -mindepth 1 -depth -type d) | while read -r file; do
		rmdir "$root/$file" 2>/dev/null || true
	done
	rm -f "$sums"
}

await() {
	for _ in {1..300}; do
		! "$@" || return 0
		sleep 0.1
	done
	return 1
}
service() { in_root /etc/init.d/shunt "$@"; }
status() { in_root shunt status --json 2>/dev/null; }
answers() { status >/dev/null; }
daemon() { status | sed -n 's/^  "pid": \([0-9]*\),/\1/p'; }
has_room_for() { status | grep -q "\"max\": $1"; }
set_option() { sed -i "/option $1 /d; s/^config instance .*/&\n\toption $1 '$2'/" "$root/etc/config/shunt"; }

echo "== install"
"$here/../hosts.sh"
# As fw4 has it: a table of its own.
nft 'add table inet fw4
	add chain inet fw4 forward { type filter hook forward priority 0; policy drop; }
	add rule inet fw4 forward ct state established,related accept
	add rule inet fw4 forward iifname "lan0" accept'
rules=$(nft list ruleset)
install_package "$ipk"
[[ $(in_root shunt --version) == "shunt "* ]] || die "shunt does not run"
[[ -e $root/etc/rc.d/S96shunt ]] || die "the init script is not enabled"
[[ $(stat -c %a "$root/etc/config/shunt") == 600 ]] || die "others can read /etc/config/shunt"
! answers || die "an instance runs that nobody has enabled"

echo "== run"
set_option enabled 1
set_option max_flows 8192
printf "\tlist ports 'lan0'\n\tlist ports 'wan0'\n" >>"$root/etc/config/shunt"
service reload
await answers || die "the instance does not answer"
has_room_for 8192 || die "the daemon does not use max_flows of /etc/config/shunt"
is_fast() { in_root shunt status | grep -q '^packets  fast [1-9]'; }
# Numbered packets, and their answers.
ip netns exec wan python3 "$traffic" echo 198.18.0.2 &
listens() { ip netns exec wan ss --no-header --listening --udp --numeric | grep -q '198.18.0.2:5000'; }
await listens || die "the WAN host does not answer"
start_traffic() {
	ip netns exec lan python3 "$traffic" send 198.18.0.2 >"$work/sent" &
	sender=$!
}
end_traffic() {
	local sent missing twice longest
	kill -TERM "$sender"
	wait "$sender"
	read -r sent missing twice longest <"$work/sent" || die "nothing was sent"
	echo "$sent packets sent, $missing missing, $twice twice, at most $longest ms without an answer"
	((sent >= 500)) || die "too few packets were sent to tell"
	((missing == 0 && twice == 0)) || die "packets were lost or doubled"
}
start_traffic
await is_fast || die "no packet took the fast path: $(in_root shunt status)"
in_root shunt status | head -5
in_root shunt flows >/dev/null
in_root shunt why --src 192.168.1.2 >/dev/null || true
end_traffic

echo "== restart"
# procd watches the process that it has started. It starts another daemon when that one ends, and sends it SIGTERM to
# stop the instance.
watched() { cat "$root/tmp/procd/shunt/default.pid"; }
has_ended() { [[ ! -d /proc/$1 ]]; }
is_kept() { status | grep -q '"kind": "taken-over"'; }
hand_over() {
	local before=$pid
	in_root shunt restart
	pid=$(daemon)
	[[ $pid && $pid != "$before" ]] || die "shunt restart has not started another daemon: '$before', '$pid'"
	is_kept || die "shunt restart has lost the flows: $(in_root shunt status)"
	! has_ended "$(watched)" || die "the process that procd watches has ended; procd would start a second daemon"
}
pid=$(daemon)
[[ $pid == "$(watched)" ]] || die "the daemon is $pid, and not $(watched), which procd has started"
hand_over
hand_over

echo "== reload"
service reload
[[ $(daemon) == "$pid" ]] || die "a reload without a change has restarted the instance"
cp "$root/etc/config/shunt" "$work/good"
refused() {
	local said
	if said=$(service reload 2>&1); then die "accepted: $1"; fi
	[[ $said == *"$1"* ]] || die "the message does not say '$1': $said"
	[[ $(daemon) == "$pid" ]] || die "a wrong configuration has ended the instance"
	cp "$work/good" "$root/etc/config/shunt"
}
set_option no_such_thing 1
refused "no_such_thing: no such option"
set_option reprove '1 fortnight'
refused "reprove"
set_option max_flows '5; reboot'
refused "max_flows: expected a number, got '5; reboot'"
set_option read_group $'"]\tevil = 1'
refused "read_group: a control character"
set_option max_flows 16384
service reload
await has_room_for 16384 || die "a reload does not bring the change of /etc/config/shunt"
has_ended "$pid" || die "the instance has not been restarted: its daemon before, $pid, still runs"

echo "== hotplug"
pid=$(daemon)
hand_over
kill -KILL "$pid"
await eval "! answers" || die "the daemon answers after SIGKILL"
await has_ended "$(watched)" || die "procd does not learn that the daemon has ended"
in_root ACTION=ifdown sh /etc/hotplug.d/iface/90-shunt
! answers || die "an interface that goes down has started the instance"
in_root ACTION=ifup sh /etc/hotplug.d/iface/90-shunt
await answers || die "the instance does not start when an interface comes up"
pid=$(daemon)
in_root ACTION=ifup sh /etc/hotplug.d/iface/90-shunt
[[ $(daemon) == "$pid" ]] || die "an interface that comes up has restarted the instance"

echo "== upgrade"
unpack "$ipk" "$work/next"
sed -i 's/^Version: .*/&.1/' "$work/next/control/control"
sed -i 's/^# Instances of Shunt/# New instances of Shunt/' "$work/next/data/etc/config/shunt"
for part in control data; do tar -C "$work/next/$part" -czf "$work/next/$part.tar.gz" .; done
tar -C "$work/next" -czf "$work/next.ipk" ./debian-binary ./data.tar.gz ./control.tar.gz
process=$(watched)
start_traffic
await is_fast || die "packets do not become fast before the upgrade"
upgrade_package "$work/next.ipk"
await answers || die "the instance does not run after the upgrade"
[[ $(daemon) != "$pid" ]] || die "the old program still runs after the upgrade"
is_kept || die "the upgrade has lost the flows: $(in_root shunt status)"
[[ $(watched) == "$process" ]] && ! has_ended "$process" || die "procd has started a daemon at the upgrade"
end_traffic
has_room_for 16384 || die "the upgrade has lost the configuration"
grep -q '^# New' "$root/etc/config/shunt-opkg" || die "the new default is not next to the changed file"

echo "== remove"
pid=$(daemon)
hand_over
remove_package
[[ ! -d /proc/$pid ]] || die "the daemon still runs"
for device in lan0 wan0; do
	[[ $(tc qdisc show dev "$device") != *clsact* && $(ip -d link show "$device") != *xdp* ]] || die "$device is not as before"
done
[[ $(nft list ruleset) == "$rules" ]] || die "the ruleset is not as before"
grep -q "option max_flows '16384'" "$root/etc/config/shunt" || die "the removal has deleted the configuration"
left=$(find "$root/etc" "$root/usr" "$root/lib" "$root/tmp/etc" -name '*shunt*' ! -path '*/etc/config/*')
[[ -z $left ]] || die "left behind: $left"

echo "== another CPU"
unpack "$ipk" "$work/package"
sed -i 's/ x86_64\| aarch64\| armv[0-9]l/ mips/g' "$work/package/control/preinst"
if said=$(run_script 0 preinst 2>&1); then die "installed on another CPU"; fi
[[ $said == *"this package is for mips"* ]] || die "the message does not name the CPU: $said"

if [[ $package ]]; then
	echo "== apk"
	apk=${APK:-apk}
	for kmod in nf-conntrack-netlink sched-core sched-bpf; do
		"$apk" mkpkg --info "name:kmod-$kmod" --info version:1-r1 --info arch:noarch --output "$work/kmod-$kmod.apk"
	done
	rm -f "$root/etc/config/shunt"*
	set_apk() { "$apk" --root "$root" --allow-untrusted --no-network --no-cache "$@"; }
	set_apk --initdb add "$work"/kmod-*.apk "$package"
	[[ $(in_root shunt --version) == "shunt "* ]] || die "shunt of the apk does not run"
	[[ -e $root/etc/rc.d/S96shunt ]] || die "the init script is not enabled"
	set_option enabled 1
	service reload
	await answers || die "the instance of the apk does not answer"
	pid=$(daemon)
	set_apk del shunt
	[[ ! -d /proc/$pid && ! -e $root/usr/sbin/shunt ]] || die "apk del leaves Shunt behind"
fi
echo "openwrt-check: passed"
