#!/bin/sh
# The first process of a guest: runs /command and gives its exit code. The serial ports are the console, standard
# output, standard error and the exit code. With PORTS=one in the kernel's command line they share one, where each line is
# marked; standard output then comes at the end. MODULES are those that a board's devices need, in their order.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /var/run
mount -t devpts pts /dev/pts
mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up
for module in $(echo "${MODULES:-}" | tr , ' '); do modprobe "$module"; done
# Of these no use makes the kernel ask.
modprobe -a veth nf_conntrack nf_conntrack_netlink 2>&1

cd /root
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
	# Setting a port waits until all of it has been sent.
	for port in 1 2; do stty -F /dev/ttyS$port raw; done
	echo "$code" >/dev/ttyS3
	stty -F /dev/ttyS3 raw
fi
echo b >/proc/sysrq-trigger
sleep 60
