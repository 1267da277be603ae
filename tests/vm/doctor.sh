#!/bin/sh
# Puts faults into a router with the NICs of a guest, one at a time, and asks `shunt doctor` while traffic arrives. Ends
# with 0 if the right finding comes first in at least nine of ten cases.
#
#     cargo xtask vm --kernel drivers --nics virtio-net-pci,mq=on,vectors=10 --file $PWD/tests/vm/doctor.sh -- \
#         sh $PWD/tests/vm/doctor.sh virtio_net
#     cargo xtask vm --kernel drivers --nics e1000e --file $PWD/tests/vm/doctor.sh -- \
#         sh $PWD/tests/vm/doctor.sh e1000e
#
# The argument is the driver's module. A line has the fault, a tab, the rule that must find it, a tab, and the rules
# that were found, in the doctor's order. With `record` as the second argument, a line of JSON follows each fault: what
# the doctor saw. Those of both drivers are crates/shunt-inspect/src/doctor/tests/guests.jsonl.
set -eu
module=$1 record=${2:-}
modprobe -a "$module" nf_conntrack nf_conntrack_netlink veth

# The device with this MAC.
device() {
	for path in /sys/class/net/*; do
		if [ "$(cat "$path/address")" = "$1" ]; then basename "$path" && return; fi
	done
	return 1
}
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
port=$(device 02:10:00:00:01:01) other=$(device 02:10:00:00:02:01)

# A router without a fault: what is a matter of taste is off, the queues are spread over the CPUs, and a slow guest may
# poll for long.
sysctl -qw net.ipv4.ip_forward=1 net.core.netdev_budget=3000 net.core.netdev_budget_usecs=100000
for one in "$port" "$other"; do
	ethtool -K "$one" gro off >/dev/null 2>&1 || true
	ethtool -K "$one" rx-gro-hw off >/dev/null 2>&1 || true
	ethtool -K "$one" lro off >/dev/null 2>&1 || true
	ethtool -A "$one" rx on tx on >/dev/null 2>&1 || true
done
defer() { echo "$1" >"/sys/class/net/$port/napi_defer_hard_irqs"; }
defer 2
echo 20000 >"/sys/class/net/$port/gro_flush_timeout"
cpus=$(nproc)
irqs() { grep "$1" /proc/interrupts | grep -v config | cut -d: -f1 | tr -d ' '; }
# The interrupts of the port; those of virtio_net have the name of its device on the bus.
if [ "$module" = virtio_net ]; then
	irqs=$(irqs "$(basename "$(readlink -f "/sys/class/net/$port/device")")-input")
else
	irqs=$(irqs "$port")
fi
to_cpus() { # a CPU for each interrupt, in turn
	n=0
	for irq in $irqs; do
		if [ "$#" = 1 ]; then cpu=$1; else cpu=$((n % cpus)); fi
		echo "$cpu" >"/proc/irq/$irq/smp_affinity_list" 2>/dev/null || true
		n=$((n + 1))
	done
}

iperf3 -s -D >/dev/null
tries=20
until ip netns exec lan iperf3 -c 10.0.1.1 -n 1K --connect-timeout 2000 >/dev/null 2>&1; do
	[ $((tries -= 1)) -gt 0 ] || { echo "no way to the router" >&2 && exit 1; }
	sleep 1
done
# Several flows, so that each queue has some.
traffic=
send() { # streams, rate of each
	[ -z "$traffic" ] || kill "$traffic" 2>/dev/null || true
	[ -z "$traffic" ] || wait "$traffic" 2>/dev/null || true
	ip netns exec lan iperf3 -c 10.0.1.1 -u -P "$1" -b "$2" -l 64 -t 3600 >/dev/null 2>&1 &
	traffic=$!
}
# The rules that find something, except those that do so without a fault: an emulated CPU copies slowly, for example.
without=
found() {
	shunt doctor "$port" --load --time 1s --record /tmp/record --json 2>/tmp/doctor | grep -o '"rule": *"[^"]*"' | cut -d'"' -f4 |
		grep -vxF "$without" | tr '\n' ' '
}

right=0 all=0
fault() { # name, rule, how to put it there, how to take it away
	if ! eval "$3" >/dev/null 2>/tmp/error; then
		printf '%s\t%s\tnot possible here: %s\n' "$1" "$2" "$(tr '\n\t' '  ' </tmp/error)"
		return
	fi
	rules=$(found) || true
	printf '%s\t%s\t%s\n' "$1" "$2" "$rules"
	if [ "$record" = record ]; then
		printf '{"guest": "%s", "fault": "%s", "rule": "%s", "systems": %s}\n' "$module" "$1" "$2" "$(tr -s ' \n' ' ' </tmp/record)"
	fi
	all=$((all + 1))
	if [ "${rules%% *}" = "$2" ]; then right=$((right + 1)); fi
	eval "$4" >/dev/null 2>&1 || true
}
# Waits until the interrupts of the port have come a thousand times.
many_interrupts() {
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		count=0
		for irq in $irqs; do
			count=$((count + $(grep "^ *$irq:" /proc/interrupts | awk -v c="$cpus" '{ for (i = 2; i < 2 + c; i++) s += $i } END { print s }')))
		done
		[ "$count" -lt 1100 ] || return 0
		sleep 1
	done
}

to_cpus 0
send 8 2M
many_interrupts
if [ "$cpus" -gt 1 ]; then
	fault 'all queues on CPU 0' interrupts-on-one-cpu true true
	to_cpus all in turn
	# Until the other CPU has had a part of all interrupts.
	sleep 5
fi
rules=$(found)
printf 'no fault\t-\t%s\n' "$rules"
without=$(printf %s "$rules" | tr ' ' '\n')
if [ "$cpus" -gt 1 ]; then
	fault 'all queues on CPU 1' queues-share-cpu 'to_cpus 1' 'to_cpus all in turn'
fi
if [ "$cpus" -gt 1 ]; then
	fault 'one flow' uneven-queues \
		'send 1 16M && sleep 1 && { ethtool -S "$port" | grep -q "rx.*[0-9]_.*packets" || ! echo no counters of queues >&2; }' \
		'send 8 2M && sleep 1'
fi
fault 'GRO on' gro-on-router "ethtool -K $port gro on" "ethtool -K $port gro off"
fault 'LRO on' lro-on-router "ethtool -K $port lro on" "ethtool -K $port lro off"
fault 'receive checksums off' checksum-offload-off "ethtool -K $port rx off" "ethtool -K $port rx on"
fault 'transmit checksums off' checksum-offload-off "ethtool -K $port tx off" "ethtool -K $port tx on"
fault 'another MTU' mtu-mismatch "ip link set $other mtu 1400" "ip link set $other mtu 1500"
fault 'coalescing off' coalescing-off \
	"defer 0; ethtool -C $port rx-usecs 0; ethtool -c $port | grep -q '^rx-usecs:.*0'" "defer 2; ethtool -C $port rx-usecs 3"
fault 'a small ring' small-ring "ethtool -G $port rx 80" "ethtool -G $port rx 256"
# Only a partner that negotiates makes these faults; QEMU's e1000e and virtio_net show none.
partner="ethtool $port | grep -q 'Link partner advertised link modes: *[0-9]'"
fault 'pause off' partner-pauses-alone "$partner && ethtool -A $port autoneg off rx off tx off" \
	"ethtool -A $port autoneg on rx on tx on"
fault 'half duplex' duplex-mismatch "$partner && ethtool -s $port speed 100 duplex half autoneg off" "ethtool -s $port autoneg on"
fault 'a short backlog' backlog-full \
	"echo $cpus >/sys/class/net/$port/queues/rx-0/rps_cpus && sysctl -qw net.core.netdev_max_backlog=1" \
	"echo 0 >/sys/class/net/$port/queues/rx-0/rps_cpus; sysctl -qw net.core.netdev_max_backlog=1000"
fault 'a small budget' softnet-squeezed \
	'sysctl -qw net.core.netdev_budget=1 net.core.dev_weight=1' \
	'sysctl -qw net.core.netdev_budget=3000 net.core.dev_weight=64'
if [ "$cpus" -gt 1 ]; then
	# A process that the doctor takes for an engine: only its name and its CPU matter.
	taskset -c 1 sh -c 'while sleep 1; do :; done' --external-engine &
	engine=$!
	fault 'an engine on the CPU of an interrupt' irq-beside-engine true "kill $engine"
fi
kill "$traffic" 2>/dev/null || true
printf 'first\t%s\tof %s\n' "$right" "$all"
[ "$all" -ge 7 ] && [ $((right * 10)) -ge $((all * 9)) ]
