#!/usr/bin/env bash
# Boots an image in QEMU as a router between two hosts, forwards through it, reads its metrics and its page, and
# upgrades Shunt in it: check.sh IMAGE PACKAGE. Everything happens in network namespaces of its own.
set -euo pipefail

die() {
	echo "image-check: $*" >&2
	[[ ! -s ${log:-} ]] || { echo "-- the end of the console:" && tail -n 30 "$log"; } >&2
	exit 1
}
((EUID == 0)) || die "network namespaces need root"
if [[ ${SHUNT_IMAGE_CHECK:-} != inside ]]; then
	export SHUNT_IMAGE_CHECK=inside
	# All processes and namespaces end with this one.
	exec unshare --mount --propagation private --net --pid --fork --kill-child --mount-proc "$(readlink -e "$0")" "$@"
fi
image=$(readlink -e "${1:?usage: check.sh IMAGE PACKAGE}") || die "$1 does not exist"
package=$(readlink -e "${2:?usage: check.sh IMAGE PACKAGE}") || die "$2 does not exist"
case $image in
*-amd64.img)
	qemu=(qemu-system-x86_64 -machine q35) firmware=/usr/share/OVMF/OVMF_CODE_4M.fd
	variables=/usr/share/OVMF/OVMF_VARS_4M.fd
	;;
*-arm64.img)
	qemu=(qemu-system-aarch64 -machine virt -cpu cortex-a72) firmware=/usr/share/AAVMF/AAVMF_CODE.fd
	variables=/usr/share/AAVMF/AAVMF_VARS.fd
	;;
*) die "$image: the name of an image ends with -amd64.img or -arm64.img" ;;
esac
[[ -r $firmware ]] || die "$firmware is missing; packaging/deps.sh --image installs it"

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
cat console.out >"$log" &
nic() { echo "virtio-net-pci,netdev=$1,romfile="; }
"${qemu[@]}" -m 1G -smp 1 -nodefaults -nographic -display none -no-reboot \
	-drive if=pflash,format=raw,readonly=on,file="$firmware" -drive if=pflash,format=raw,file=variables.fd \
	-drive if=virtio,file=disk.qcow2 \
	-netdev tap,id=lan,ifname=tap-lan,script=no,downscript=no -device "$(nic lan)" \
	-netdev tap,id=wan,ifname=tap-wan,script=no,downscript=no -device "$(nic wan)" \
	-chardev pipe,id=console,path=console -serial chardev:console &
router=$!
exec 3>console.in

# Waits until a command succeeds: within SECONDS COMMAND...
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		kill -0 $router 2>/dev/null || die "QEMU has ended"
		((SECONDS < end)) || die "in vain: $*"
		sleep 0.5
	done
}
# Runs a command at the router's console, and prints what it prints.
nth=0
guest() {
	local from
	nth=$((nth + 1))
	from=$(stat --format %s "$log")
	# The line that is typed does not contain the words that are waited for.
	echo "echo begin''-$nth; { $1; } 2>&1; echo end''-$nth-\$?" >&3
	within "${2:-300}" grep -qaE "^end-$nth-[0-9]+" "$log"
	tail -c +$((from + 1)) "$log" | tr -d '\r' | sed -n "/begin-$nth\$/,/^end-$nth-/p" | sed '1d;$d'
	grep -qa "^end-$nth-0" "$log"
}
answers() { guest "$1" | grep -qE "$2"; }
lan() { ip netns exec lan "$@"; }
downloads() { lan curl -sS --max-time 60 http://198.51.100.1/file | cmp - wan/file; }
# Number of fast packets, as a host of the LAN reads it.
fast() {
	lan curl -sS --max-time 20 http://192.168.1.1:9469/metrics |
		awk '/^shunt_packets_total.*path="(tc|xdp)"/ { sum += $2 } END { print sum + 0 }'
}

echo "== it boots"
within 1200 grep -qaE 'root@shunt:' "$log"
guest 'stty -echo; PS1=; uname -r'
within 600 answers 'systemctl is-active shuntd@default' '^active'
guest 'systemctl --failed --no-legend | cat; df --output=size -BM / | tail -n 1'
answers 'systemctl --failed --no-legend | wc -l' '^0$' || die "units have failed"
(($(guest 'df --output=size -BM / | tail -n 1 | tr -dc 0-9') > 3000)) || die "the root file system has not grown"

echo "== a host gets an address, and reaches the internet"
cat >lease.sh <<'END'
#!/bin/sh
[ "$1" != bound ] || { ip address replace "$ip/$mask" dev "$interface"; ip route replace default via "$router"; echo "$dns $domain" >/mnt/lan/lease; }
END
chmod +x lease.sh
lan busybox udhcpc -q -n -t 30 -T 1 -i eth0 -s /mnt/lease.sh >/dev/null 2>&1 || die "no address by DHCP"
[[ $(cat lan/lease) == "192.168.1.1 lan" ]] || die "unexpected lease: $(cat lan/lease)"
within 60 lan ping -q -c 1 -W 1 198.51.100.1 >/dev/null
downloads || die "the file differs"

echo "== what comes from the provider's side is refused"
lan busybox httpd -f -p 80 -h lan &
wan_address=$(guest 'ip -4 -o address show dev eth1' | grep -oE 'inet [0-9.]+' | cut -d' ' -f2)
ip -n wan route add 192.168.1.0/24 via "$wan_address"
for url in http://192.168.1.1:9470/ "http://$wan_address:9470/" "http://$(lan ip -4 -o address show dev eth0 | grep -oE '192[0-9.]+' | head -n 1)/lease"; do
	! ip netns exec wan curl -sS --max-time 3 "$url" >/dev/null 2>&1 || die "$url answers the provider's side"
done

echo "== the fast path forwards"
lan iperf3 --version >/dev/null
ip netns exec wan iperf3 -s -D -I /mnt/iperf3.pid >/dev/null
before=$(fast)
lan iperf3 -c 198.51.100.1 -t 5 -R >/dev/null || die "no iperf3"
after=$(fast)
((after > before + 100)) || die "fast packets: $before before, $after after"
echo "$((after - before)) packets fast"
token=$(guest 'cat /etc/shunt/page.token')
lan curl -sS --max-time 20 -H "Authorization: Bearer $token" http://192.168.1.1:9470/v1/status | grep -q eth1 || die "no status"
[[ $(lan curl -sS --max-time 20 -o /dev/null -w '%{http_code}' http://192.168.1.1:9470/v1/status) == 401 ]] || die "a status without a token"

echo "== the lab is on board"
guest 'shunt line --size 64 | head -n 5'

echo "== Shunt is upgraded during a download"
tree=/mnt/tree
dpkg-deb --raw-extract "$package" $tree
sed -i 's/^Version: .*/&+1/' $tree/DEBIAN/control
dpkg-deb --build --root-owner-group -Znone $tree wan/later.deb >/dev/null
(for _ in 1 2 3 4 5; do downloads || exit 1; done) &
downloading=$!
guest 'curl -sS -o /tmp/later.deb http://198.51.100.1/later.deb && dpkg -i /tmp/later.deb' 900 || die "the upgrade has failed"
wait $downloading || die "a file differs"
answers 'dpkg-query -W shunt' '\+1$' || die "the version is not the new one"
within 600 answers 'systemctl is-active shuntd@default' '^active'
lan iperf3 -c 198.51.100.1 -t 5 -R >/dev/null
(($(fast) > 100)) || die "nothing is fast after the upgrade"

echo "== it goes off"
echo poweroff >&3
for ((i = 0; i < 120; i++)); do
	kill -0 $router 2>/dev/null || break
	sleep 0.5
done
! kill -0 $router 2>/dev/null || die "it does not go off"
echo "image-check: all passed"
