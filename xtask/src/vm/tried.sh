# Shunt on a router of two veths: the release of the kernel, and then the status that Shunt has of itself.
uname -r
ip link add r0 type veth peer name p0
ip link add r1 type veth peer name p1
for device in r0 p0 r1 p1; do
	ip link set $device up
	ethtool -K $device gro on
done
sysctl -qw net.ipv4.ip_forward=1
shunt up --engine auto --port r0 --port r1 >&2
shunt status --json
shunt down >&2
