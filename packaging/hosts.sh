#!/bin/sh
# Makes this network namespace a router between a LAN host and a WAN host, in namespaces `lan` and `wan`: 192.168.1.2
# behind lan0, and 198.18.0.2 behind wan0. For the checks of packages.
set -eu
mkdir -p /run/netns
ip link set lo up
for host in lan:192.168.1 wan:198.18.0; do
	name=${host%:*} net=${host#*:}
	ip netns add "$name"
	ip link add "${name}0" type veth peer name up0 netns "$name"
	ip address add "$net.1/24" dev "${name}0"
	ip link set "${name}0" up
	ip -n "$name" address add "$net.2/24" dev up0
	ip -n "$name" link set up0 up
	ip -n "$name" route add default via "$net.1"
done
echo 1 >/proc/sys/net/ipv4/ip_forward
