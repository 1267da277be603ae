#!/usr/bin/env bash
# Installs what looks at the pages of the daemon and of `shunt report`: a browser from the distribution, where there is
# none, and what drives it into target/browser.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v npm >/dev/null; then
	echo "browser: Node.js and npm are missing; install them (Debian: nodejs npm)" >&2
	exit 1
fi
if ! command -v chromium-headless-shell chromium >/dev/null; then
	as_root=()
	((EUID == 0)) || as_root=(sudo)
	"${as_root[@]}" apt-get update -q
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends chromium-headless-shell
fi
mkdir -p target/browser
# It has no dependencies, and brings no browser of its own.
npm install --silent --no-save --no-package-lock --prefix target/browser playwright-core@1.64.1
