#!/usr/bin/env bash
# Opens the page for LuCI in LuCI's own scripts and in a browser, with a daemon that forwards. SHUNT_LUCI names a
# checkout of LuCI's sources, which no package has.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [[ -z ${SHUNT_LUCI:-} ]]; then
	cat <<-'END'
		SKIP the page in LuCI: SHUNT_LUCI names no sources of LuCI. To get them and to test:
		git clone --depth 1 https://github.com/openwrt/luci target/luci
		sudo make luci-test SHUNT_LUCI=target/luci
	END
	exit 0
fi
if ((EUID != 0)); then
	echo "page-check: network namespaces need root: sudo make luci-test SHUNT_LUCI=$SHUNT_LUCI" >&2
	exit 1
fi
SHUNT_LUCI=$(readlink -e "$SHUNT_LUCI")
export SHUNT_LUCI
packaging/browser.sh
packaging/cargo.sh build --locked -p shunt -p shuntd
packaging/cargo.sh test --locked -p shunt-tests --test daemon -- luci::
