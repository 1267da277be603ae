#!/bin/sh
# Runs in the new system as root, once it has its packages and the files of root/.
set -e
export DEBIAN_FRONTEND=noninteractive
dpkg -i /tmp/shunt.deb
rm /tmp/shunt.deb /tmp/customize.sh

echo shunt >/etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 shunt\n::1 localhost\n' >/etc/hosts
# dnsmasq asks the servers that systemd-resolved knows.
rm -f /etc/resolv.conf
echo 'nameserver 127.0.0.1' >/etc/resolv.conf
mkdir -p /etc/systemd/resolved.conf.d
printf '[Resolve]\nDNSStubListener=no\n' >/etc/systemd/resolved.conf.d/dnsmasq.conf
sed -i 's/^metrics = ""/metrics = "192.168.1.1:9469"/; s/^page = ""/page = "192.168.1.1:9470"/
	s,^page_token_file = "",page_token_file = "/etc/shunt/page.token",; s/^hosts = \[\]/hosts = ["shunt.lan"]/' \
	/etc/shunt/shunt.toml
systemctl enable systemd-networkd systemd-resolved nftables dnsmasq shuntd@default shunt-page-token
systemctl disable systemd-networkd-wait-online 2>/dev/null || true

passwd --lock root
# Each copy of the image makes its own.
: >/etc/machine-id

if [ -e /etc/ssh/sshd_config ]; then
	rm -f /etc/ssh/ssh_host_*
	systemctl enable ssh-host-keys
fi
