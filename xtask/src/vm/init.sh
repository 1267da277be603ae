#!/bin/sh
# The first process of a guest: runs /command and returns its exit code. The serial ports are the console, standard
# output, standard error and the exit code. With PORTS=one in the kernel's command line, all share one port, each line
# has a prefix, and standard output comes at the end. MODULES lists the modules of a board's devices, in the order of
# loading; with COLDPLUG, those of all devices that the kernel has found are loaded before.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /var/run
mount -t devpts pts /dev/pts
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
mount -t cgroup2 cgroup /sys/fs/cgroup
[ ! -d /sys/kernel/tracing ] || mount -t tracefs tracing /sys/kernel/tracing
ip link set lo up
# Devices appear behind those whose drivers have been loaded.
for _ in ${COLDPLUG:+1 2 3}; do
	find /sys/devices -name modalias -exec cat {} + | sort -u | xargs -r modprobe -aq
done
for module in $(echo "${MODULES:-}" | tr , ' '); do modprobe "$module"; done
# The kernel does not load these on demand.
modprobe -a veth nf_conntrack nf_conntrack_netlink 2>&1

cd /root || exit
if [ "${PORTS:-}" = one ]; then
	{
		setsid /command </dev/null >/run/output
		echo "code:$?" >/run/code
	} 2>&1 | sed -u 's/^/errors:/'
	sed 's/^/output:/' /run/output
	cat /run/code
	stty raw
else
	for port in 1 2 3; do stty -F /dev/ttyS$port raw -echo; done
	setsid /command </dev/null >/dev/ttyS1 2>/dev/ttyS2
	code=$?
	# stty waits until the port has sent everything.
	for port in 1 2; do stty -F /dev/ttyS$port raw; done
	echo "$code" >/dev/ttyS3
	stty -F /dev/ttyS3 raw
fi
echo b >/proc/sysrq-trigger
sleep 60
