#!/usr/bin/env bash
# Installs, runs, upgrades, removes and purges the Debian package: check.sh PACKAGE. Everything happens in a
# copy-on-write view of this machine's root, with mounts, processes and network of its own, so nothing of the machine
# changes. systemctl is replaced by a script that records what the package asks for.
set -euo pipefail

die() {
	echo "deb-check: $*" >&2
	exit 1
}
package=$(readlink -e "${1:?usage: check.sh PACKAGE}") || die "$1 does not exist"
if [[ ${SHUNT_DEB_CHECK:-} != inside ]]; then
	((EUID == 0)) || die "a chroot and network namespaces need root: sudo make deb-check"
	command -v dpkg >/dev/null || die "this machine has no dpkg"
	script=$(readlink -e "$0")
	export SHUNT_DEB_CHECK=inside
	exec unshare --mount --propagation private --net --pid --fork --kill-child --mount-proc "$script" "$package"
fi

# The root: reads are from this machine, writes go to memory.
work=/mnt
mount -t tmpfs tmpfs "$work"
mkdir "$work/packages" "$work/root"
root=$work/root
overlay() {
	local name
	name=$work/layers/${1//\//_}
	mkdir -p "$name/upper" "$name/work"
	mount -t overlay overlay -o "lowerdir=$1,upperdir=$name/upper,workdir=$name/work" "$root/${1#/}"
}
overlay /
for place in /usr /var /etc /opt; do
	! mountpoint -q "$place" || overlay "$place"
done
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs /run
unset SHUNT_RUNTIME_DIR
in_root() { chroot "$root" env DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

# What this machine has of Shunt must not stand in for what the package brings.
in_root dpkg --purge shunt >/dev/null 2>&1 || true
rm -rf "$root"/usr/local/bin/shunt* "$root/etc/shunt"

log=$root/systemctl.log
cat >"$root/usr/local/sbin/systemctl" <<'END'
#!/bin/sh
echo "$*" >>/systemctl.log
END
chmod 755 "$root/usr/local/sbin/systemctl"
mkdir -p "$root/run/systemd/system"
: >"$log"

# Asserts that systemctl was called with exactly these arguments since the last time.
asked() {
	diff <(printf '%s\n' "$@") "$log" >&2 || die "unexpected calls of systemctl"
	: >"$log"
}

# Makes a package with a higher version: later SUFFIX [SED-EXPRESSION for the conffile].
later() {
	local tree=$work/packages/tree new=$work/packages/shunt$1.deb
	rm -rf "$tree"
	dpkg-deb --raw-extract "$package" "$tree"
	sed -i "s/^Version: .*/&$1/" "$tree/DEBIAN/control"
	[[ -z ${2:-} ]] || sed -i "$2" "$tree/etc/shunt/shunt.toml"
	dpkg-deb --build --root-owner-group -Znone "$tree" "$new" >/dev/null
	mv "$new" "$root/tmp/"
	echo "/tmp/shunt$1.deb"
}
installed() { in_root dpkg-query --show --showformat '${db:Status-Status} ${Version}' shunt 2>/dev/null || echo none; }
cp "$package" "$root/tmp/shunt.deb"
version=$(dpkg-deb --field "$package" Version)
toml=$root/etc/shunt/shunt.toml

if in_root test -x /usr/bin/lintian; then
	echo "== lintian"
	in_root lintian --allow-root --fail-on error,warning /tmp/shunt.deb
fi

echo "== install $version"
in_root dpkg --install /tmp/shunt.deb </dev/null
[[ $(installed) == "installed $version" ]] || die "not installed: $(installed)"
asked "--system daemon-reload"
[[ -z $(find "$root/etc/systemd/system" -name 'shuntd@*') ]] || die "an instance is enabled"
in_root dpkg --verify shunt
[[ $(stat -c %U:%G:%a "$root/usr/bin/shuntd") == root:root:755 ]] || die "wrong owner or mode of shuntd"
[[ $(in_root shunt --version) == "shunt "* ]] || die "shunt does not run"
bash -n "$root/usr/share/bash-completion/completions/shunt"
grep -q '^ExecStart=/usr/bin/shuntd ' "$root/usr/lib/systemd/system/shuntd@.service" || die "the unit has another path"
in_root shunt status >/dev/null 2>&1 && die "a daemon runs after the installation"

echo "== run"
"$(dirname "$0")/../hosts.sh"
nft 'add table inet fw; add chain inet fw forward { type filter hook forward priority 0; }
	add rule inet fw forward ct state established,new accept'
sed -i 's/^max_flows = .*/max_flows = 8192/' "$toml"
in_root shunt up --port lan0 --port wan0
in_root shunt status --json | grep -q '"max": 8192' || die "the daemon does not use the configuration"
is_fast() { in_root shunt status | grep -q '^packets  fast [1-9]'; }
for _ in {1..50}; do
	# The answer to a datagram without a receiver is an error of the next one.
	timeout 5 ip netns exec lan bash -c 'exec 3>/dev/udp/198.18.0.2/5000; for n in {1..20}; do echo $n >&3 || true; done' 2>/dev/null || true
	! is_fast || break
done
is_fast || die "no packet took the fast path: $(in_root shunt status)"
in_root shunt status | head -5

echo "== upgrade with a changed configuration file"
daemon() { in_root shunt status --json | sed -n 's/^  "pid": \([0-9]*\),/\1/p'; }
# Whether another daemon has taken over from $pid since; that is $pid from then on.
has_handed_over() {
	local before=$pid
	pid=$(daemon)
	[[ $pid && $pid != "$before" && ! -d /proc/$before ]] || die "the upgrade has not handed the instance over: '$before', '$pid'"
	in_root shunt status --json | grep -q '"kind": "taken-over"' || die "the upgrade has lost the flows"
}
pid=$(daemon)
next=$(later +1)
in_root dpkg --install "$next" </dev/null
[[ $(installed) == "installed $version+1" ]] || die "not upgraded: $(installed)"
asked "--system daemon-reload"
grep -q '^max_flows = 8192' "$toml" || die "the upgrade has lost the change of shunt.toml"
has_handed_over

echo "== upgrade to a package with another default"
next=$(later +2 's/^idle = .*/idle = "60s"/')
in_root dpkg --force-confdef --force-confold --install "$next" </dev/null
grep -q '^max_flows = 8192' "$toml" || die "the upgrade has lost the change of shunt.toml"
grep -q '^idle = "60s"' "$toml.dpkg-dist" || die "the new default is not next to the changed file"
has_handed_over
: >"$log"

echo "== remove"
echo 'OPTIONS=--port lan0' >"$root/etc/shunt/default.env"
wants=$root/etc/systemd/system/multi-user.target.wants
mkdir -p "$wants"
ln -s /usr/lib/systemd/system/shuntd@.service "$wants/shuntd@default.service"
in_root dpkg --remove shunt </dev/null
asked "--system stop shuntd@*.service" "--system daemon-reload"
[[ ! -d /proc/$pid ]] || die "the daemon still runs"
[[ ! -e $root/usr/bin/shunt && ! -e $root/usr/bin/shuntd ]] || die "programs are left behind"
grep -q '^max_flows = 8192' "$toml" || die "the removal has deleted the configuration"
for device in lan0 wan0; do
	[[ $(tc qdisc show dev "$device") != *clsact* && $(ip -d link show "$device") != *xdp* ]] || die "$device is not as before"
done

echo "== install again, over the configuration that was kept"
in_root dpkg --force-confdef --force-confold --install /tmp/shunt.deb </dev/null
grep -q '^max_flows = 8192' "$toml" || die "the installation has lost the change of shunt.toml"

echo "== purge"
in_root dpkg --purge shunt </dev/null
[[ $(installed) == none || $(installed) == not-installed* ]] || die "not purged: $(installed)"
left=$(find "$root/etc" "$root/usr" "$root/run" -xdev -newer "$root/tmp/shunt.deb" -name '*shunt*')
[[ -z $left && ! -e $root/var/lib/shunt ]] || die "left behind: $left $(ls -d "$root/var/lib/shunt")"

echo "== a file that nobody has changed follows the package"
in_root dpkg --install /tmp/shunt.deb </dev/null >/dev/null
in_root dpkg --install "$next" </dev/null >/dev/null
grep -q '^idle = "60s"' "$toml" || die "an unchanged shunt.toml did not get the new default"
in_root dpkg --purge shunt </dev/null >/dev/null
echo "deb-check: passed"
