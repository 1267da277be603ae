#!/usr/bin/env bash
# Runs the package under systemd: systemd.sh PACKAGE [SUITE]
#
# A container of its own boots Debian's systemd as process 1. There, the package is installed as its README says, and a
# LAN host exchanges numbered packets with a WAN host through the router, while the service is restarted, killed and
# upgraded: no packet may be missing, and the same connections must be fast again. Nothing of this machine changes; the
# container's root in target/systemd is new each time.
set -euo pipefail
cd "$(dirname "$0")/../.."

die() {
	echo "systemd-check: $*" >&2
	exit 1
}
package=$(readlink -e "${1:?usage: systemd.sh PACKAGE [SUITE]}") || die "$1 does not exist; make deb builds it"
suite=${2:-bookworm}
((EUID == 0)) || die "a container needs root: sudo make systemd-check"
for need in mmdebstrap systemd-nspawn:systemd-container; do
	command -v "${need%:*}" >/dev/null || die "${need%:*} is missing: apt-get install ${need#*:}"
done

root=$PWD/target/systemd/$suite
rm -rf --one-file-system "$root"
mkdir -p "${root%/*}"
mmdebstrap --quiet --variant=minbase --include=apt,dbus,iproute2,nftables,python3-minimal,systemd-sysv "$suite" "$root"
cp packaging/hosts.sh packaging/deb/traffic.py "$root/root/"

# Packages with the same programs and higher versions.
version=$(dpkg-deb --field "$package" Version)
for number in 0 1; do
	dpkg-deb --raw-extract "$package" "$root/root/tree"
	sed -i "s/^Version: .*/&+$number/" "$root/root/tree/DEBIAN/control"
	dpkg-deb --build --root-owner-group -Znone "$root/root/tree" "$root/root/shunt$number.deb" >/dev/null
	rm -r "$root/root/tree"
done

systemd-nspawn --quiet --directory "$root" --boot --register=no --keep-unit --private-network --capability=all \
	--system-call-filter='bpf perf_event_open' --console=pipe </dev/null >"$root.log" 2>&1 &
container=$!
stop() {
	# To systemd-nspawn, the first one asks for a shutdown, and the second one for an end at once.
	for _ in 1 2; do
		kill "$container" 2>/dev/null || break
		timeout 20 tail --pid "$container" -f /dev/null || true
	done
}
trap stop EXIT

# Waits for a condition: until_true SECONDS COMMAND...
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 0.2
	done
}
init=
has_init() { init=$(pgrep --parent "$container" --exact systemd); }
inside() {
	nsenter --target "$init" --all env --ignore-environment TERM=dumb DEBIAN_FRONTEND=noninteractive \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
has_booted() { [[ $(inside systemctl is-system-running 2>/dev/null) =~ ^(running|degraded)$ ]]; }
until_true 60 has_init || die "the container does not start: $(cat "$root.log")"
until_true 120 has_booted || die "the container does not boot: $(cat "$root.log")"
echo "== $(inside systemctl --version | head -n 1)"

unit=shuntd@default
show() { inside systemctl show --property "$1" --value "$unit"; }
status() { inside shunt status --json; }
fast() { status 2>/dev/null | sed -n '/^  "packets": {/,/}/s/^ *"fast": \([0-9]*\),*$/\1/p'; }
fail() {
	inside journalctl --no-pager --unit "$unit" | tail -n 40 >&2
	die "$@"
}

inside sh /root/hosts.sh
inside sh -eu -c '
	nft "add table ip nat; add chain ip nat post { type nat hook postrouting priority srcnat; }
		add rule ip nat post oifname wan0 masquerade"
	systemd-run --quiet --unit echo ip netns exec wan python3 /root/traffic.py echo 198.18.0.2
'

echo "== install $version, start"
inside dpkg --install /root/shunt0.deb </dev/null >/dev/null || die "the package cannot be installed"
echo 'OPTIONS=--port lan0 --port wan0' >"$root/etc/shunt/default.env"
inside systemctl enable --quiet --now "$unit" || fail "the service does not start"

restart() { inside systemctl restart "$unit"; }
hand_over() { inside shunt restart; }
crash() { inside systemctl kill --signal KILL --kill-whom main "$unit"; }
upgrade() { inside dpkg --install /root/shunt1.deb </dev/null >/dev/null; }
another_runs() { [[ $(show MainPID) != "$pid" && $(show ActiveState) == active ]] && status >/dev/null 2>&1; }
# Whether nine packets of ten were fast lately: two packets for each one sent, in half a second.
is_fast() {
	local before
	before=$(fast)
	sleep 0.5
	[[ $before ]] && (($(fast) - before >= 400))
}
for change in restart hand_over crash upgrade; do
	inside systemd-run --quiet --unit send --property StandardOutput=file:/root/sent \
		ip netns exec lan python3 /root/traffic.py send 198.18.0.2
	until_true 20 is_fast || fail "before $change: packets do not become fast"
	pid=$(show MainPID)
	"$change" || fail "$change fails"
	until_true 30 another_runs || fail "$change: no other daemon runs"
	status | grep -q '"kind": "taken-over"' || fail "$change: flows were not kept: $(inside shunt status | head -n 5)"
	until_true 20 is_fast || fail "$change: packets do not become fast again"
	inside systemctl stop send
	read -r sent missing twice longest <"$root/root/sent" || fail "$change: nothing was sent"
	echo "$change: $sent packets sent, $missing missing, $twice twice, at most $longest ms without an answer"
	((sent >= 500)) || fail "$change: too few packets were sent to tell"
	((missing == 0 && twice == 0)) || fail "$change lost or doubled packets"
done

echo "== stop, purge"
inside systemctl stop "$unit"
[[ $(show ActiveState) == inactive && $(show NFileDescriptorStore) == 0 ]] || fail "the service has not stopped"
inside dpkg --purge shunt >/dev/null 2>&1
left=$(find "$root"/{etc,usr,run,var/lib} -xdev -path '*/dpkg' -prune -o -name '*shunt*' -print)
[[ -z $left ]] || die "left behind: $left"
echo "systemd-check: passed"
