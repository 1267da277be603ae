# Shunt on a board, between its Ethernet, at the other end of which an echo server is, and a host behind a veth. What was
# seen comes as lines of the form `what: value`, the status that Shunt has of itself as the last one.
exec 3>&1 1>&2
say() { echo "$1: $2" >&3; }

say kernel "$(uname -r)"
[ -e /sys/kernel/btf/vmlinux ] && say btf yes || say btf no
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
sysctl -qw net.ipv4.ip_forward=1
nft 'table ip nat { chain post { type nat hook postrouting priority srcnat; oifname "eth0" masquerade; }; }'

# What Shunt says, on one line, or nothing.
refusal() { shunt up --engine "$1" --port eth0 --port r1 2>&1 >/dev/null | tail -n 1; }
echo_of() { ip netns exec host timeout 60 bash -c '
	exec 4<>/dev/tcp/10.0.2.100/7
	cat /tmp/sent >&4 &
	head -c "$(stat -c %s /tmp/sent)" <&4'; }

head -c 1000000 /dev/urandom >/tmp/sent
same() { [ "$(echo_of | sha256sum)" = "$(sha256sum </tmp/sent)" ] && echo same || echo other; }
say linux-alone "$(same)"
for engine in xdp auto; do
	said=$(refusal $engine)
	if [ "$said" ]; then
		say "$engine" "$said"
		continue
	fi
	say "$engine" ok
	say "$engine-echo" "$(same)"
	say "$engine-status" "$(shunt status --json | tr -d '\n')"
	say "$engine-end" "$(shunt down)"
done
exit 0
