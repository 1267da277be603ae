#!/bin/sh
# What only igb shows: the external engine on NICs with AF_XDP in zero copy, and together with a port without it; and
# restarts with the engine xdp, which the link must not notice. Ends with 0 if all claims hold.
#
#     cargo xtask vm --kernel drivers --nics igb --file $PWD/tests/vm/zero_copy.sh -- sh $PWD/tests/vm/zero_copy.sh
#
# Further words are the parts to run, `zero_copy` or `restarts`; without one, both.
#
# The guest has two wires of igb NICs. Hosts are in namespaces at the far ends; the third host, behind a veth, has no
# zero copy.
set -eu
modprobe -a igb nf_conntrack nf_conntrack_netlink veth

fail() {
	echo "FAIL: $*" >&2
	shunt status --verbose >&2 || true
	cat /run/shunt/default.log >&2 2>/dev/null || true
	exit 1
}
device() { # MAC
	for path in /sys/class/net/*; do
		if [ "$(cat "$path/address")" = "$1" ]; then basename "$path" && return; fi
	done
	return 1
}
host() { # name, its device, the router's device, number of the network
	ip netns add "$1"
	ip link set "$3" up
	ip address add "10.0.$4.1/24" dev "$3"
	ip link set "$2" netns "$1"
	ip -n "$1" link set "$2" up
	ip -n "$1" address add "10.0.$4.2/24" dev "$2"
	ip -n "$1" route add default via "10.0.$4.1"
}
lan=$(device 02:10:00:00:01:01) || fail "igb drives no NIC"
wan=$(device 02:10:00:00:02:01)
host lan "$(device 02:10:00:00:01:02)" "$lan" 1
host wan "$(device 02:10:00:00:02:02)" "$wan" 2
ip link add veth0 type veth peer name peer0
host far peer0 veth0 3
sysctl -qw net.ipv4.ip_forward=1
nft add table ip filter
nft add chain ip filter forward '{ type filter hook forward priority 0; policy drop; }'
nft add rule ip filter forward ct state established,related accept
nft add rule ip filter forward ct state new accept
ip netns exec wan iperf3 -s -D >/dev/null
ip netns exec far iperf3 -s -D >/dev/null

until_true() { # seconds, command
	for _ in $(seq "$1"); do if "$2"; then return; fi; sleep 1; done
	return 1
}
reaches() { ip netns exec lan iperf3 -c "$1" -n 1K --connect-timeout 2000 >/dev/null 2>&1; }
reaches_wan() { reaches 10.0.2.2; }
reaches_far() { reaches 10.0.3.2; }
port() { shunt status --verbose | grep "^$1: "; }
is_served() { port "$lan" | grep -q "external (AF_XDP mode: $mode)" && port "$other" | grep -q "external (AF_XDP mode: $mode)"; }
packets() { shunt status --json | tr ',{' '\n\n' | sed -n "s/^ *\"$1\": *\([0-9]*\)\$/\1/p" | awk '{ sum += $1 } END { print sum + 0 }'; }
# How often the link went away and came back.
link_changes() { cat "/sys/class/net/$lan/carrier_changes"; }

# Forwards by the engine, and loses nothing that tc or Linux could carry.
forwards() { # address, host
	before=$(packets external)
	ip netns exec lan iperf3 -c "$1" --bidir -u -b 1M -l 64 -t 4 >/tmp/iperf || fail "no traffic: $(cat /tmp/iperf)"
	after=$(packets external)
	[ "$after" -gt "$((before + 500))" ] || fail "the engine forwarded $before, then $after packets"
}
# An engine that ends costs no link: the program stays attached.
survives_its_engine() {
	changes=$(link_changes)
	for _ in 1 2; do
		kill -KILL "$(ps -e -o pid=,args= | awk '$3 == "--external-engine" { print $1 }')"
		sleep 1
		"$1" || fail "packets are lost while no engine runs"
		until_true 20 is_served || fail "the engine does not come back"
	done
	[ "$(link_changes)" = "$changes" ] || fail "the link went away: $changes changes, then $(link_changes)"
}

zero_copy() {
	until_true 20 reaches_wan || fail "no way to the WAN"
	mode='zero copy' other=$wan
	shunt up --engine external --port "$lan" --port "$wan" --core 0
	until_true 20 is_served || fail "the engine does not serve both NICs with zero copy"
	until_true 20 reaches_wan || fail "no way to the WAN"
	forwards 10.0.2.2
	survives_its_engine reaches_wan
	shunt down
	echo "two igb: zero copy"

	until_true 20 reaches_far || fail "no way to the host behind the veth"
	mode='copy' other=veth0
	shunt up --engine external --port "$lan" --port veth0 --core 0
	until_true 20 is_served || fail "the engine does not serve an igb and a veth"
	until_true 20 reaches_far || fail "no way to the host behind the veth"
	changes=$(link_changes)
	forwards 10.0.3.2
	sleep 5
	[ "$(link_changes)" = "$changes" ] || fail "the link went away: $changes changes, then $(link_changes)"
	survives_its_engine reaches_far
	shunt down
	echo "igb and veth: copy"
}

# Packets that a NIC or a receiver had no room for: an emulated CPU that loads programs leaves them waiting for seconds.
full() {
	for netns in '' 'ip netns exec lan' 'ip netns exec wan'; do
		$netns sh -c 'cat /sys/class/net/*/statistics/rx_missed_errors /sys/class/net/*/statistics/rx_fifo_errors
			awk "/^Udp: [0-9]/ { print \$6 }" /proc/net/snmp'
	done | awk '{ sum += $1 } END { print sum + 0 }'
}

# Attaching an XDP program resets an igb; exchanging it does not.
restarts() {
	until_true 20 reaches_wan || fail "no way to the WAN"
	shunt up --engine xdp --port "$lan" --port "$wan"
	until_true 20 reaches_wan || fail "no way to the WAN"
	changes=$(link_changes) full=$(full)
	seconds=600
	ip netns exec lan iperf3 -c 10.0.2.2 --bidir -u -b 50K -l 64 -t $seconds --json >/tmp/iperf &
	iperf=$!
	before=$(packets fast)
	are_fast() { [ "$(packets fast)" -gt "$((before + 500))" ]; }
	until_true 60 are_fast || fail "packets do not become fast"
	for _ in 1 2; do
		shunt restart || fail "shunt restart fails"
		shunt status --json | grep -q '"kind": *"taken-over"' || fail "flows were not handed over"
		before=$(packets fast)
		until_true 60 are_fast || fail "packets do not become fast again"
	done
	kill -0 $iperf || fail "the restarts took longer than $seconds s"
	wait $iperf || fail "no traffic: $(cat /tmp/iperf)"
	[ "$(link_changes)" = "$changes" ] || fail "the link went away: $changes changes, then $(link_changes)"
	# The end of the report has what both receivers have missed.
	lost=$(tr -d '\n\t ' </tmp/iperf | sed 's/.*"end"://' | grep -o '"lost_packets":[0-9]*' | sed 's/.*://' | sort -rn | head -n 1)
	full=$(($(full) - full))
	echo "two igb: two restarts, $changes changes of the link before and after"
	echo "two igb: at most $lost packets lost in a direction, and $full in full rings and sockets"
	[ "${lost:-1}" -le "$full" ] || fail "packets were lost: $(tail -n 60 /tmp/iperf)"
	shunt down
}

[ $# -gt 0 ] || set -- zero_copy restarts
for part in "$@"; do "$part"; done
