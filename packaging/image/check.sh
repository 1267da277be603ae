#!/usr/bin/env bash
# Boots an image in QEMU as a router between two hosts, forwards through it, reads its metrics and its page, and
# upgrades Shunt in it: check.sh IMAGE PACKAGE. Everything happens in network namespaces of its own.
set -Eeuo pipefail

die() {
	trap - ERR
	echo "image-check: $*" >&2
	[[ ! -s ${log:-} ]] || { echo "-- the end of the console:" && tail -n 30 "$log"; } >&2
	exit 1
}
trap 'die "line $LINENO: $BASH_COMMAND"' ERR
# The first process of a PID namespace ignores signals without a handler.
trap 'exit 130' INT
trap 'exit 143' TERM
((EUID == 0)) || die "network namespaces need root"
if [[ ${SHUNT_IMAGE_CHECK:-} != inside ]]; then
	export SHUNT_IMAGE_CHECK=inside
	# All processes and namespaces end with this one.
	exec unshare --mount --propagation private --net --pid --fork --kill-child --mount-proc "$(readlink -e "$0")" "$@"
fi
image=$(readlink -e "${1:?usage: check.sh IMAGE PACKAGE}") || die "$1 does not exist"
package=$(readlink -e "${2:?usage: check.sh IMAGE PACKAGE}") || die "$2 does not exist"
# Without KVM: some virtual machines offer one that fails in the firmware.
case $image in
*-amd64.img)
	qemu=(qemu-system-x86_64 -machine q35 -accel tcg -cpu max) firmware=/usr/share/OVMF/OVMF_CODE_4M.fd
	variables=/usr/share/OVMF/OVMF_VARS_4M.fd
	;;
*-arm64.img)
	qemu=(qemu-system-aarch64 -machine virt -cpu cortex-a72) firmware=/usr/share/AAVMF/AAVMF_CODE.fd
	variables=/usr/share/AAVMF/AAVMF_VARS.fd
	;;
*) die "$image: the name of an image ends with -amd64.img or -arm64.img" ;;
esac
[[ -r $firmware ]] || die "$firmware is missing; packaging/deps.sh --image installs it"

traffic=$(readlink -e "$(dirname "$0")/../deb/traffic.py")

mount -t tmpfs tmpfs /run
mkdir /run/netns
mount -t tmpfs tmpfs /mnt
cd /mnt
log=/mnt/console.log

# The hosts at both sides, each behind a TAP device of the router.
for side in lan wan; do
	ip netns add $side
	ip link add $side type veth peer name eth0 netns $side
	ip tuntap add tap-$side mode tap
	ip link add br-$side type bridge mcast_snooping 0
	for port in $side tap-$side; do
		ip link set $port master br-$side up
	done
	ip link set br-$side up
	ip -n $side link set lo up
	ip -n $side link set eth0 up
done
ip -n wan address add 198.51.100.1/24 dev eth0
mkdir -p lan wan
head -c 20000000 /dev/urandom >wan/file
cat >udhcpd.conf <<'END'
start 198.51.100.100
end 198.51.100.110
interface eth0
lease_file /mnt/leases
opt router 198.51.100.1
opt dns 198.51.100.1
opt subnet 255.255.255.0
END
: >leases
ip netns exec wan busybox udhcpd -f udhcpd.conf >udhcpd.log 2>&1 &
ip netns exec wan busybox httpd -f -p 80 -h wan &

# The disk is a layer over the image, and larger than it.
qemu-img create -q -f qcow2 -b "$image" -F raw disk.qcow2 4G
cp "$variables" variables.fd
mkfifo console.in console.out
: >"$log"
cat console.out >"$log" &
nic() { echo "virtio-net-pci,netdev=$1,romfile="; }
"${qemu[@]}" -m 1G -smp 1 -nodefaults -nographic -display none -no-reboot \
	-drive if=pflash,format=raw,readonly=on,file="$firmware" -drive if=pflash,format=raw,file=variables.fd \
	-drive if=virtio,file=disk.qcow2 \
	-netdev tap,id=lan,ifname=tap-lan,script=no,downscript=no -device "$(nic lan)" \
	-netdev tap,id=wan,ifname=tap-wan,script=no,downscript=no -device "$(nic wan)" \
	-chardev pipe,id=console,path=console -serial chardev:console &
router=$!
# Opened for reading, too: opening does not wait for QEMU, which may fail.
exec 3<>console.in

# Waits until a command succeeds: within SECONDS WHAT COMMAND...
within() {
	local end=$((SECONDS + $1)) seconds=$1 what=$2
	shift 2
	until "$@"; do
		kill -0 $router 2>/dev/null || die "QEMU has ended while the check waited for $what"
		((SECONDS < end)) || die "waited $seconds s for $what, in vain"
		sleep 0.5
	done
}
# Runs a command at the router's console and keeps what it prints in `said`: guest COMMAND [SECONDS]. Not for subshells,
# which would count the commands for themselves.
nth=0
guest() {
	local from
	nth=$((nth + 1))
	from=$(stat --format %s "$log")
	# The line that is typed does not contain the lines that are waited for. To a terminal, commands print colours.
	printf '{ %s; } </dev/null >/run/said 2>&1; code=$?; ' "$1" >&3
	printf 'echo; echo begin-"%s"; cat /run/said; echo; echo end-"%s"-$code\n' $nth $nth >&3
	within "${2:-180}" "the end of: $1" grep -qaE "^end-$nth-[0-9]+" "$log"
	said=$(tail -c +$((from + 1)) "$log" | tr -d '\r' | sed -n "/^begin-$nth\$/,/^end-$nth-/p" | sed '1d;$d')
	grep -qa "^end-$nth-0" "$log"
}
# Whether a command prints a line of this form at the router's console.
answers() { guest "$1" && grep -qE "$2" <<<"$said"; }
lan() { ip netns exec lan "$@"; }
downloads() { lan curl -sS --max-time 180 http://198.51.100.1/file | cmp - wan/file; }
# At full speed, an emulated CPU has no time left for the daemon, and the flow stays slow for seconds.
streams() { lan timeout 60 iperf3 -c 198.51.100.1 --connect-timeout 10000 -t 5 -b 50M -R >iperf3.log 2>&1; }
# Number of fast packets, as a host of the LAN reads it.
fast() {
	lan curl -sS --max-time 60 http://192.168.1.1:9469/metrics |
		awk '/^shunt_packets_total.*path="(tc|xdp)"/ { sum += $2 } END { print sum + 0 }'
}

echo "== it boots"
within 1500 "the prompt of root's shell" grep -qaE 'root@shunt:' "$log"
# A shell without a prompt, and a console without the kernel's messages.
echo "stty -echo; dmesg --console-level emerg; exec env PS1= sh" >&3
guest 'uname -r' && echo "Linux $said"
within 900 "shuntd" answers 'systemctl is-active shuntd@default' '^active$'
within 300 "the end of booting" answers 'systemctl list-jobs --no-legend | wc -l' '^0$'
guest 'systemctl --failed --no-legend'
[[ -z $said ]] || die "units have failed: $said"
guest 'df --output=size -BM / | tail -n 1'
((${said//[!0-9]/} > 3000)) || die "the root file system has not grown: $said"

echo "== a host gets an address, and reaches the internet"
cat >lease.sh <<'END'
#!/bin/sh
[ "$1" != bound ] || { ip address replace "$ip/$mask" dev "$interface"; ip route replace default via "$router"; echo "$dns $domain" >/mnt/lan/lease; }
END
chmod +x lease.sh
lan busybox udhcpc -q -n -t 30 -T 2 -i eth0 -s /mnt/lease.sh >udhcpc.log 2>&1 || die "no address by DHCP: $(cat udhcpc.log)"
[[ $(cat lan/lease) == "192.168.1.1 lan" ]] || die "unexpected lease: $(cat lan/lease)"
lan_address=$(lan ip -4 -o address show dev eth0 | grep -oE '192[0-9.]+' | head -n 1)
within 120 "an answer from the WAN" lan ping -q -c 1 -W 2 198.51.100.1 >/dev/null
downloads || die "the file differs"

echo "== what comes from the provider's side is refused"
lan busybox httpd -f -p 80 -h lan &
guest 'ip -4 -o address show dev eth1'
wan_address=$(grep -oE 'inet [0-9.]+' <<<"$said" | cut -d' ' -f2)
ip -n wan route add 192.168.1.0/24 via "$wan_address"
# From the LAN, the same addresses answer.
for url in http://192.168.1.1:9470/ http://192.168.1.1:9469/metrics "http://$lan_address/lease"; do
	within 60 "$url" lan curl -sS --max-time 20 -o /dev/null "$url"
	! ip netns exec wan curl -sS --max-time 5 -o /dev/null "$url" 2>/dev/null || die "$url answers the provider's side"
done

echo "== the fast path forwards"
ip netns exec wan iperf3 -s -D -I /mnt/iperf3.pid >/dev/null
before=$(fast) || die "no metrics"
streams || die "no iperf3: $(cat iperf3.log)"
after=$(fast) || die "no metrics"
((after > before + 100)) || { guest 'shunt status' && die "fast packets: $before before, $after after; $said"; }
echo "$((after - before)) packets fast"
guest 'cat /etc/shunt/page.token'
page=http://192.168.1.1:9470/v1/status
lan curl -sS --max-time 60 -H "Authorization: Bearer $said" $page >status.json
grep -q '"eth1"' status.json || die "no eth1 in the status: $(cat status.json)"
code=$(lan curl -sS --max-time 60 -o /dev/null -w '%{http_code}' $page)
[[ $code == 401 ]] || die "the status without a token: $code instead of 401"

echo "== the lab is on board"
guest 'shunt bench size --size 64 --engine slow --engine tc --runs 1 --time 500ms' 900 || die "no measurement: $said"
echo "$said"

echo "== an update of the kernel replaces what the boot loader starts"
guest 'rm -r /boot/efi/loader/entries/* /boot/efi/shunt/*; release=$(uname -r)
	/etc/kernel/postinst.d/zz-systemd-boot $release /boot/vmlinuz-$release' 600 || die "the boot loader's hook fails: $said"
guest 'cd /boot/efi && find loader/entries shunt -type f | sort'
[[ $(sed 's/-[0-9].*//; s,/[0-9][^/]*,,' <<<"$said" | tr '\n' ' ') == "loader/entries/shunt shunt/initrd.img shunt/linux " ]] ||
	die "not an entry, an initramfs and a kernel: $said"

# Makes a package with the same programs and a higher version, in a repository on the WAN host: later SUFFIX.
later() {
	local tree=/mnt/tree file=wan/apt/shunt$1.deb
	rm -rf $tree wan/apt
	mkdir wan/apt
	dpkg-deb --raw-extract "$package" $tree
	sed -i "s/^Version: .*/&$1/" $tree/DEBIAN/control
	dpkg-deb --build --root-owner-group -Znone $tree "$file" >/dev/null
	{
		cat $tree/DEBIAN/control
		echo "Filename: ./${file##*/}"
		echo "Size: $(stat --format %s "$file")"
		echo "SHA256: $(sha256sum <"$file" | cut -d' ' -f1)"
	} >wan/apt/Packages
}
# Fetches the list of that repository, and of no other.
only='-o Dir::Etc::sourcelist=/etc/apt/sources.list.d/wan.list -o Dir::Etc::sourceparts=-'
upgrade() { guest "apt-get $only update && apt-get $only -y upgrade" 900 || die "the upgrade has failed: $said"; }
main_pid() {
	guest 'systemctl show --property MainPID --value shuntd@default'
	pid=${said//[!0-9]/}
}
# Whether another daemon has taken over from $pid, and systemd has its descriptors.
has_handed_over() {
	local before=$pid
	main_pid
	[[ $pid && $pid != 0 && $pid != "$before" ]] || die "the upgrade has not started another daemon: '$before', '$pid'"
	answers 'shunt status --json' '"kind": "taken-over"' || die "the upgrade has lost the flows: $said"
	answers 'systemctl show --property NFileDescriptorStore --value shuntd@default' '^[1-9][0-9]*$' ||
		die "systemd keeps no descriptors: $said"
}
guest "echo 'deb [trusted=yes] http://198.51.100.1/apt ./' >/etc/apt/sources.list.d/wan.list"

echo "== apt upgrade loses no packet"
ip netns exec wan python3 "$traffic" echo 198.51.100.1 &
main_pid
later +1
# Slow enough for the router, whose CPU is emulated and busy with dpkg.
ip netns exec lan python3 "$traffic" send 198.51.100.1 100 >sent &
sender=$!
# Of two packets for each one sent, nine of ten are fast.
is_fast() {
	local before after
	before=$(fast) && sleep 2 && after=$(fast) && ((after - before >= 360))
}
within 120 "fast packets" is_fast
upgrade
answers 'dpkg-query -W shunt' '\+1$' || die "the version is not the new one: $said"
has_handed_over
within 120 "fast packets after the upgrade" is_fast
kill $sender
wait $sender || die "no count of the packets"
read -r sent missing twice longest <sent
echo "$sent packets sent, $missing missing, $twice twice, at most $longest ms without an answer"
((sent >= 500 && missing == 0 && twice == 0)) || die "the upgrade lost or doubled packets"

echo "== apt upgrade during a download"
later +2
(for _ in 1 2 3 4 5; do downloads || exit 1; done) &
downloading=$!
upgrade
wait $downloading || die "a file differs"
answers 'dpkg-query -W shunt' '\+2$' || die "the version is not the new one: $said"
has_handed_over
before=$(fast) || die "no metrics after the upgrade"
streams || die "no iperf3 after the upgrade: $(cat iperf3.log)"
after=$(fast) || die "no metrics after the upgrade"
((after > before + 100)) || die "fast packets after the upgrade: $before before, $after after"

echo "== it goes off"
echo poweroff >&3
is_off() { ! kill -0 $router 2>/dev/null; }
for ((i = 0; i < 240; i++)); do
	! is_off || break
	sleep 0.5
done
is_off || die "it is on two minutes after poweroff"
echo "image-check: all passed"
