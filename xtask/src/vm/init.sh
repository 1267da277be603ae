#!/bin/sh
# The first process of a guest: runs /command and gives its exit code. The serial ports are the console, standard
# output, standard error and the exit code.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /var/run
mount -t devpts pts /dev/pts
mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up
# Of these no use makes the kernel ask.
modprobe -a veth nf_conntrack nf_conntrack_netlink 2>&1

for port in 1 2 3; do stty -F /dev/ttyS$port raw -echo; done
cd /root
setsid /command </dev/null >/dev/ttyS1 2>/dev/ttyS2
code=$?
# Setting a port waits until all of it has been sent.
for port in 1 2; do stty -F /dev/ttyS$port raw; done
echo "$code" >/dev/ttyS3
stty -F /dev/ttyS3 raw
echo b >/proc/sysrq-trigger
sleep 60
