#!/bin/sh
# What `shunt up` does with the NICs of a guest with two wires, and whether it forwards: by itself, and by each engine.
#
#     cargo xtask vm --kernel drivers --nics e1000e --file $PWD/tests/vm/nics.sh -- sh tests/vm/nics.sh e1000e
#
# The argument is the driver's module. `cargo xtask nics` runs this for each NIC and writes docs/nics.md. A line has an
# engine, a tab, the status before the traffic, a tab, and the status after it; or an engine, a tab, and the error of
# `shunt up`. The first line has `check`, a tab, and the output of `shunt check`. If the module drives no NIC, the only
# line has `missing`, a tab, and why.
#
# With `cost` as the second argument, a line has `linux` or an engine, a space, `udp` or `tcp`, a tab, the run time in
# ns of the threads that poll the router's NICs, a tab, and the number of packets that they received. In a guest that
# counts instructions, each takes one ns.
set -eu

module=$1
mode=${2-engines}
modprobe -a "$module" nf_conntrack nf_conntrack_netlink veth

# The device with this MAC.
device() {
	for path in /sys/class/net/*; do
		if [ "$(cat "$path/address")" = "$1" ]; then basename "$path" && return; fi
	done
	return 1
}

if ! device 02:10:00:00:01:01 >/dev/null; then
	printf 'missing\t%s\n' "the module $module drives none of the NICs"
	exit
fi

if [ "$mode" = engines ]; then
	ip netns add far
	near=$(device 02:10:00:00:01:01)
	far=$(device 02:10:00:00:01:02)
	ip link set "$far" netns far
	ip -n far link set "$far" up
	ip link set "$near" up
	printf 'check\t%s\n' "$(shunt check "$near" --peer "$far" --peer-netns far --json 2>/tmp/error | tr -d '\n\t')"
	# The device comes back.
	ip netns del far
	for _ in 1 2 3 4 5 6 7 8 9 10; do if device 02:10:00:00:01:02 >/dev/null; then break; fi; sleep 1; done
fi

wire() { # host, number of the wire
	ip netns add "$1"
	near=$(device "02:10:00:00:0$2:01")
	far=$(device "02:10:00:00:0$2:02")
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

ip netns exec wan iperf3 -s -D >/dev/null
# Waits until a connection through the router works: links take seconds to come up, and attaching may reset them.
reach() {
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		if ip netns exec lan iperf3 -c 10.0.2.2 -n 1K --connect-timeout 2000 >/dev/null 2>&1; then return; fi
		sleep 1
	done
	echo "no connection through the router" >&2
	return 1
}
reach
send() { ip netns exec lan iperf3 -c 10.0.2.2 --bidir -u -b "${rate-1M}" -l 64 -t "$1" >/dev/null; }
status() { shunt status --json | tr -d '\n\t'; }

# All NICs are polled by threads of their own, so that those of the router's do no other work. Attaching a program may
# replace them.
poll_by_threads() {
	all='for file in /sys/class/net/*/threaded; do echo 0 >$file && echo 1 >$file; done 2>/dev/null; true'
	sh -c "$all"
	for host in lan wan; do ip netns exec "$host" sh -c "$all"; done
}
run_time() {
	for thread in /proc/[0-9]*; do
		case $(cat "$thread/comm" 2>/dev/null) in
		"napi/$near_lan-"* | "napi/$near_wan-"*) cat "$thread/schedstat" ;;
		esac
	done | awk '{ sum += $1 } END { print sum }'
}
received() { cat "/sys/class/net/$near_lan/statistics/rx_packets" "/sys/class/net/$near_wan/statistics/rx_packets" | awk '{ sum += $1 } END { print sum }'; }
# In bursts, so that a poll has several packets, as on a busy router.
send_udp() { rate=1M/32 send "$1"; }
send_tcp() { ip netns exec lan iperf3 -c 10.0.2.2 -b 20M/32 -l 1448 -t "$1" >/dev/null; }
cost() { # name
	poll_by_threads
	for traffic in udp tcp; do
		"send_$traffic" 2
		time=$(run_time) packets=$(received)
		"send_$traffic" 4
		printf '%s %s\t%s\t%s\n' "$1" "$traffic" "$(($(run_time) - time))" "$(($(received) - packets))"
	done
}
if [ "$mode" = cost ]; then
	# Frames of the MTU arrive at the router, which may merge them itself.
	ip netns exec lan ethtool -K "$(ip -n lan -o link show up | awk -F': ' '$2 != "lo" { print $2 }')" tso off gso off
	near_lan=$(device 02:10:00:00:01:01) near_wan=$(device 02:10:00:00:02:01)
	cost linux
	for engine in tc xdp; do
		if shunt up --engine "$engine" >/dev/null 2>&1; then
			reach
			cost "$engine"
			shunt down >/dev/null
		fi
	done
	exit
fi

for engine in auto tc xdp external; do
	if ! shunt up --engine "$engine" >/dev/null 2>/tmp/error; then
		printf '%s\t%s\n' "$engine" "$(tr '\n\t' '  ' </tmp/error)"
		continue
	fi
	reach
	# `auto` looks at the traffic for a while before it chooses.
	send 10
	before=$(status)
	send 4
	printf '%s\t%s\t%s\n' "$engine" "$before" "$(status)"
	shunt down >/dev/null
done
