#!/usr/bin/env bash
# Runs tests with cargo-nextest: test.sh ARGUMENTS... Then removes the network namespaces of tests that were ended
# because they hung, with the processes in them.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
tools=$(packaging/tools.sh) || exit

namespaces() { ip netns list 2>/dev/null | cut -d ' ' -f 1 | grep '^shunt-' | sort; }

# Output in pipes would fit this width.
unset COLUMNS
# The lock of legacy iptables is one for all namespaces, and it does not wait for another test's.
export XTABLES_LOCKFILE=/proc/self/ns/net
before=$(namespaces)
PATH=$tools:$PATH packaging/cargo.sh nextest run --locked --workspace "$@"
status=$?
comm -13 <(echo "$before") <(namespaces) | while read -r name; do
	# shunt-LABEL-PID-NUMBER, see crates/shunt-lab/src/net/netns.rs.
	owner=${name%-*}
	[[ ! -e /proc/${owner##*-} ]] || continue
	ip netns pids "$name" | xargs -r kill -KILL
	ip netns del "$name"
done
exit "$status"
