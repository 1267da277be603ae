# shellcheck shell=sh
# Runs Shunt on a router with two veths. Prints the kernel's release, how `shunt up` ends without some kernel features
# (separated by tabs), and the status as JSON. xtask/src/vm/kernel_report.rs runs this script in a guest.
uname -r
ip link add r0 type veth peer name p0
ip link add r1 type veth peer name p1
for device in r0 p0 r1 p1; do
	ip link set $device up
	ethtool -K $device gro on
done
sysctl -qw net.ipv4.ip_forward=1
up='shunt up --engine auto --port r0 --port r1'
echo 'learn = false' >static.toml

# Runs a command without a feature; prints the feature, the exit code and the error.
without() {
	said=$($2 2>&1 >/dev/null)
	printf '%s\t%s %s\n' "$1" $? "$said"
}

mount -t tmpfs none /sys/kernel/btf
without 'BTF is missing' "$up"
without 'BTF is missing, static flows only' "$up --config static.toml"
shunt down >&2
umount /sys/kernel/btf
modprobe -r nf_conntrack_netlink nf_conntrack
without 'nf_conntrack is not loaded' "$up"
without 'nf_conntrack is not loaded, static flows only' "$up --config static.toml"
shunt down >&2
modprobe nf_conntrack

$up >&2
shunt status --json
shunt down >&2
