# shellcheck shell=sh
# Runs Shunt on a board, between a host behind a veth and an echo server at the other end of the board's Ethernet.
# Prints results as lines `NAME: VALUE`. xtask/src/vm/boards/board_report.rs runs this script in a guest.
exec 3>&1 1>&2
say() { echo "$1: $2" >&3; }

say kernel "$(uname -r)"
[ -e /sys/kernel/btf/vmlinux ] && say btf yes || say btf no
say jit "$(sysctl -n net.core.bpf_jit_enable)"
ip link set eth0 up
say driver "$(basename "$(readlink /sys/class/net/eth0/device/driver)")"
ip address add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
tries=100
until [ "$(cat /sys/class/net/eth0/carrier)" = 1 ] || [ $((tries -= 1)) = 0 ]; do sleep 0.2; done
say link "$(ethtool eth0 | sed -n 's/^\t\(Speed\|Duplex\): //p' | tr '\n' ' ')"

ip netns add host
ip link add r1 type veth peer name p1 netns host
ip address add 192.168.1.1/24 dev r1
ip link set r1 up
ip -n host address add 192.168.1.2/24 dev p1
ip -n host link set p1 up
ip -n host route add default via 192.168.1.1
# A veth takes frames of XDP from another port only if its peer polls.
ip netns exec host ethtool -K p1 gro on
sysctl -qw net.ipv4.ip_forward=1
nft 'table ip nat { chain post { type nat hook postrouting priority srcnat; oifname "eth0" masquerade; }; }'

# Runs `shunt up` with these options; prints the last line of its error, or nothing.
refusal() {
	up=$(shunt up "$@" --port eth0 --port r1 2>&1 >/dev/null) || echo "$up" | tail -n 1
}
echo_of() { ip netns exec host timeout 60 bash -c '
	exec 4<>/dev/tcp/10.0.2.100/7
	cat /tmp/sent >&4 &
	head -c "$(stat -c %s /tmp/sent)" <&4'; }
same() { [ "$(echo_of | sha256sum)" = "$(sha256sum </tmp/sent)" ] && echo same || echo other; }
status() { shunt status --json | tr -d '\n'; }
# An engine outside the kernel comes later than `shunt up`.
served() {
	tries=50
	until status | grep -q '"engine": *"external"' || [ $((tries -= 1)) = 0 ]; do sleep 0.2; done
}
tell() {
	say "$1-echo" "$(same)"
	say "$1-status" "$(status)"
	say "$1-end" "$(shunt down)"
}
# Starts Shunt with these options, has an echo pass, and stops it: start NAME OPTION...
start() {
	name=$1
	shift
	said=$(refusal "$@")
	say "$name" "${said:-ok}"
	[ "$said" ] && return
	case $* in *external*) served ;; esac
	tell "$name"
}

head -c 1000000 /dev/urandom >/tmp/sent
say linux-alone "$(same)"
start auto --engine auto
start tc --engine tc
start xdp --engine xdp
start external --engine external
# Without the veth, the engine has zero copy where the driver has it; it passes each packet to Linux.
start external-alone --engine tc --external-port eth0

# What shows the port. The other end of its cable is no port that could check it.
registers() { shunt reg read --from "$1" '*' 2>&1 | grep -c '^[A-Z].* 0x'; }
say reg "$(registers ethtool:eth0) registers from the driver's dump, $(registers mdio:eth0) of the PHY"
say link-brief "$(shunt link eth0 --brief 2>&1 | tail -n 1 | tr -s ' ')"
say check "$(shunt check eth0 2>/dev/null | tail -n 1)"
said=$(refusal --engine auto)
if [ -z "$said" ]; then
	shunt trace --seconds 10 --sample 1 >/tmp/trace 2>&1 &
	tries=200
	until grep -q '^shunt: tracing' /tmp/trace || [ $((tries -= 1)) = 0 ]; do sleep 0.2; done
	same >/tmp/traced
	wait $!
	said=$(grep 'packets traced' /tmp/trace || tail -n 1 /tmp/trace)
	shunt down
fi
say trace "$said"

# The host sends with a VLAN tag, which the board takes off and puts on.
ip link add link r1 name r1.10 type vlan id 10
ip address add 192.168.10.1/24 dev r1.10
ip link set r1.10 up
ip -n host link add link p1 name p1.10 type vlan id 10
ip -n host address add 192.168.10.2/24 dev p1.10
ip -n host link set p1.10 up
ip -n host route add 10.0.2.100 via 192.168.10.1
start vlan --engine auto
ip -n host route del 10.0.2.100
ip link del r1.10

# The same connection by static flows in both directions; the source port is fixed for that.
echo 'learn = false' >/tmp/static.toml
said=$(refusal --config /tmp/static.toml)
say static "${said:-ok}"
if [ -z "$said" ]; then
	mac_of() { ip neighbour show "$2" dev "$1" | sed -n 's/.*lladdr \([^ ]*\).*/\1/p'; }
	ip netns exec host sysctl -qw net.ipv4.ip_local_port_range='4000 4000'
	# Finish checksums in the sender, as on a wire: without BTF, Shunt leaves packets that may lack a checksum to
	# Linux. Conntrack sees few packets of static flows, so it must be liberal.
	ip netns exec host ethtool -K p1 tx off
	sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=1
	shunt flow add --proto tcp --in-port r1 --src 192.168.1.2:4000 --dst 10.0.2.100:7 --out-port eth0 \
		--next-hop "$(mac_of eth0 10.0.2.100)" --snat 10.0.2.15:4000
	shunt flow add --proto tcp --in-port eth0 --src 10.0.2.100:7 --dst 10.0.2.15:4000 --out-port r1 \
		--next-hop "$(mac_of r1 192.168.1.2)" --dnat 192.168.1.2:4000
	tell static
fi
