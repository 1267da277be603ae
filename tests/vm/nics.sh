#!/bin/sh
# Which engine `shunt up` takes on real drivers, and whether traffic is fast. For guests with two wires:
#
#     cargo xtask vm --nics virtio-net-pci --file $PWD/tests/vm/nics.sh -- sh tests/vm/nics.sh virtio_net
#
# The argument is the driver's module. Fails if fewer than nine of ten packets are fast.
set -eu

module=$1
modprobe -a "$module" nf_conntrack nf_conntrack_netlink veth

# The device with this MAC.
device() {
	for path in /sys/class/net/*; do
		if [ "$(cat "$path/address")" = "$1" ]; then basename "$path" && return; fi
	done
	echo "no device has the MAC $1; the module $module does not drive the NICs" >&2
	return 1
}

wire() { # host, number of the wire
	ip netns add "$1"
	near=$(device "02:00:00:00:0$2:01")
	far=$(device "02:00:00:00:0$2:02")
	ip link set "$near" up
	ip address add "10.0.$2.1/24" dev "$near"
	ip link set "$far" netns "$1"
	ip -n "$1" link set "$far" up
	ip -n "$1" address add "10.0.$2.2/24" dev "$far"
	ip -n "$1" route add default via "10.0.$2.1"
}
wire lan 1
wire wan 2
sysctl -qw net.ipv4.ip_forward=1
nft add table ip filter
nft add chain ip filter forward '{ type filter hook forward priority 0; policy drop; }'
nft add rule ip filter forward ct state established,related accept
nft add rule ip filter forward ct state new accept

shunt up
ip netns exec wan iperf3 -s -D >/dev/null
sleep 1
send() { ip netns exec lan iperf3 -c 10.0.2.2 --bidir -u -b 1M -l 64 -t "$1" >/dev/null; }
send 6
number() { shunt status | tr -d , | sed -n "s/^packets .* *$1 \([0-9]*\).*/\1/p"; }
fast=$(number fast) slow=$(number slow)
send 4
shunt status
fast=$(($(number fast) - fast)) slow=$(($(number slow) - slow))
echo "fast $fast, slow $slow"
shunt down
[ "$fast" -gt $((9 * slow)) ]
