# Commands for users and for CI. cargo, cargo xtask and packaging/deps.sh do the work.

CARGO_RUN := packaging/cargo.sh
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
ARCH ?= amd64

.PHONY: bench-peers browser-test build cost deps dist kernel-test lint mlrsearch openwrt openwrt-check router router-test systemd-check test test-long test-long-root zero-copy-test doctor-test demo bench install uninstall deb deb-check deb-twice fresh-test oci image image-check clean help need-root

build: deps
	$(CARGO_RUN) build --release --locked -p shunt -p shuntd

help:
	@echo "make build             target/release/shunt and target/release/shuntd"
	@echo "sudo make demo         real traffic without Shunt and with it; KEEP=1 leaves it up"
	@echo "sudo make test         all tests except the long ones; 25 minutes on two cores, after 5 to build them"
	@echo "                         SHUNT_SOAK_MINUTES=1   length of the soak; the default is 0.5, and 2 if CI=true"
	@echo "                         SHUNT_NO_SKIP=1        fail instead of skipping when MLRsearch (PyPI) or a guest (QEMU and a"
	@echo "                                                Debian kernel) cannot be had; the default if CI=true"
	@echo "make lint              formats, lints, documentation, dependencies, spelling"
	@echo "make test-long         model-checker proofs of the packet core, the flow table in every schedule within bounds, and"
	@echo "                         unsafe Rust in Miri, if a nightly toolchain has it;"
	@echo "                         as root, also the long tests, 30 minutes of soak, long twin runs, zero copy in a guest,"
	@echo "                         and all kernels of the list, which rewrites docs/kernels.md; several hours"
	@echo "sudo make bench        target/bench/results.json, summary.json; QUICK=1 takes less than a minute"
	@echo "sudo make cost         instructions per packet of each path, compared with the committed figures"
	@echo "make bench-peers       comparison with other fast paths, in instructions: target/bench/peers.json; XDP_FORWARD=PROGRAM, QUICK=1"
	@echo "sudo make install      PREFIX=$(PREFIX), DESTDIR=$(DESTDIR)"
	@echo "sudo make uninstall    removes what make install has put there; keeps shunt.toml if it was changed"
	@echo "make deb ARCH=$(ARCH)    a Debian package in target/deb; amd64, arm64 or armv7"
	@echo "make oci ARCH=$(ARCH)    an OCI image in target/oci"
	@echo "make image ARCH=$(ARCH)  a disk with a router, in target/image; amd64 or arm64"
	@echo "sudo make image-check  boots such a disk, forwards through it, and upgrades the package in it"
	@echo "make deb-twice         builds the package in two folders, and compares the bytes"
	@echo "sudo make deb-check    installs, runs, upgrades and purges the package in a throw-away root"
	@echo "sudo make systemd-check  runs it under systemd in containers of Debian 12 and 13: restarted, killed and upgraded"
	@echo "sudo make fresh-test   make demo and make test in new roots of Debian 12, Debian 13 and Ubuntu 24.04; hours"
	@echo "make dist ARCH=$(ARCH)   a tarball with static programs in target/dist; amd64, arm64 or armv7"
	@echo "make router ARCH=$(ARCH) one small static program for routers with little flash, in target/router; also ARCH=all"
	@echo "make openwrt ARCH=$(ARCH)  packages of it for OpenWrt, in target/openwrt"
	@echo "sudo make openwrt-check   installs, runs, upgrades and removes these in a throw-away root"
	@echo "make mlrsearch         the Python package that the search is tested against (target/mlrsearch)"
	@echo "make browser-test      the daemon's page and that of shunt report in a browser, which is installed for it"
	@echo "make kernel-test       some of the tests on 6.1 (as in make test) and the newest Debian kernel, in QEMU"
	@echo "make deps              distribution packages that are missing"
	@echo "make clean             what was built"

deps:
	@packaging/deps.sh

# The reference implementation of MLRsearch, with which the tests compare ours.
MLRSEARCH := tests/search/requirements.txt
target/mlrsearch/installed: $(MLRSEARCH)
	python3 -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $(MLRSEARCH)
	touch $@

mlrsearch: target/mlrsearch/installed

lint: deps
	packaging/lint.sh

# A machine may be unable to fetch what some tests need: MLRsearch, and QEMU with a kernel. Unless SHUNT_NO_SKIP=1 or
# CI=true, these tests then say SKIP; no other test may skip.
MAY_SKIP_FETCHED := $(if $(filter 1,$(SHUNT_NO_SKIP))$(filter true,$(CI)),0,1)
TEST_ENV = SHUNT_NO_SKIP=1 SHUNT_SKIP_FETCHED=$(MAY_SKIP_FETCHED) SHUNT_BIN_DIR=$(CURDIR)/target/debug \
	SHUNT=$(CURDIR)/target/debug/shunt SHUNTD=$(CURDIR)/target/debug/shuntd
# .config/nextest.toml says how many tests run at a time, and which alone.
TEST = $(TEST_ENV) packaging/test.sh

# All that the tests run, as debug programs. Cargo.toml has what is optimised in them.
test-programs: need-root deps
	$(CARGO_RUN) build --locked --workspace --bins --tests

test: test-programs
	-@$(MAKE) --no-print-directory mlrsearch
	@packaging/deps.sh --vm || true
	$(TEST)

# In guests that count instructions. The programs that run in the kernel are the same in debug builds.
cost: test-programs
	@packaging/deps.sh --vm
	SHUNT_BIN_DIR=$(CURDIR)/target/debug $(CARGO_RUN) run --quiet --locked -p xtask -- cost

# Some of the tests on the oldest and the newest kernel of the list.
kernel-test: test-programs
	@packaging/deps.sh --vm || true
	$(TEST) --run-ignored all -E 'binary(kernels)'

# If the distribution has no cbmc 6, xtask unpacks Debian's package in the user's cache directory.
test-long: build
	@packaging/deps.sh --proof
	$(CARGO_RUN) run --quiet --locked -p xtask -- prove
	$(CARGO_RUN) test --locked -p shunt-proof -- --include-ignored --nocapture
	packaging/miri.sh
	@test "$$(id -u)" != 0 || $(MAKE) --no-print-directory test-long-root

test-long-root: build test-programs
	@packaging/deps.sh --vm --pair
	$(TEST) --run-ignored only -E 'package(shunt-tests)'
	@$(MAKE) --no-print-directory zero-copy-test doctor-test openwrt-check router-test systemd-check
	@$(MAKE) --no-print-directory router ARCH=all
	$(CARGO_RUN) run --quiet --locked -p xtask -- soak --minutes 30
	for engine in tc xdp auto; do \
		$(CARGO_RUN) run --quiet --locked -p xtask -- twin --packets 1000000 --changes 1000 --engine $$engine || exit 1; \
	done
	$(CARGO_RUN) run --quiet --locked -p xtask -- kernels
	@$(MAKE) --no-print-directory fresh-test

# The driver of igb has zero copy, and resets the link when an XDP program comes or goes. QEMU has igb from version 8
# on; without it, xtask fetches that of Debian's next release.
zero-copy-test: build
	$(CARGO_RUN) run --quiet --locked -p xtask -- vm --kernel drivers --timeout 1800 --nics igb \
		--file $(CURDIR)/tests/vm/zero_copy.sh -- sh $(CURDIR)/tests/vm/zero_copy.sh

# Puts faults into the NICs of two guests, and asks `shunt doctor`.
doctor-test: build
	for nic in virtio-net-pci,mq=on,vectors=10:virtio_net e1000e:e1000e; do \
		$(CARGO_RUN) run --quiet --locked -p xtask -- vm --kernel drivers --timeout 900 \
			--nics $${nic%:*} --file $(CURDIR)/tests/vm/doctor.sh -- \
			sh $(CURDIR)/tests/vm/doctor.sh $${nic#*:} || exit 1; \
	done

# Not part of `make test`: only two pages need a browser, which takes 300 MB.
browser-test: deps
	packaging/browser.sh
	SHUNT_BROWSER_TEST=1 $(CARGO_RUN) test --locked -p shunt --test report
	SHUNT_BROWSER_TEST=1 $(CARGO_RUN) test --locked -p shuntd --lib -- control::tests::page

# The page for LuCI in LuCI's own scripts; without SHUNT_LUCI=DIRECTORY, it says how to get these.
.PHONY: luci-test
browser-test: luci-test
luci-test:
	SHUNT_LUCI=$(SHUNT_LUCI) packaging/openwrt/page-check.sh

demo: need-root build
	$(CARGO_RUN) run --quiet --locked -p xtask -- demo $(if $(KEEP),--keep)

bench: need-root build
	$(CARGO_RUN) run --quiet --locked -p xtask -- bench $(if $(QUICK),--quick)

# In guests that count instructions. XDP_FORWARD is xdp-forward of xdp-tools, built from its source.
bench-peers: build
	@packaging/deps.sh --vm
	$(CARGO_RUN) run --quiet --locked -p xtask -- peers $(if $(QUICK),--quick) $(if $(XDP_FORWARD),--xdp-forward $(XDP_FORWARD))

install: build
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin target/release/shunt target/release/shuntd
	rm -rf target/man && mkdir -p target/man
	target/release/shunt man target/man
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 target/man/*.1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man5 target/man/*.5
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man8 target/man/*.8
	sed 's,/usr/local/,$(PREFIX)/,' packaging/shuntd@.service | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/shuntd@.service
	target/release/shunt completions bash | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/bash-completion/completions/shunt
	target/release/shunt completions zsh | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_shunt
	target/release/shunt completions fish | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/shunt.fish
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/shunt/prometheus $(addprefix packaging/prometheus/,alerts.yml dashboard.json)
	test -e $(DESTDIR)$(SYSCONFDIR)/shunt/shunt.toml || \
		install -D -m 644 -t $(DESTDIR)$(SYSCONFDIR)/shunt packaging/shunt.toml

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/shunt $(DESTDIR)$(PREFIX)/bin/shuntd
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/man/,man1/shunt.1 man1/shunt-*.1 man5/shunt.toml.5 man8/shuntd.8)
	rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/shuntd@.service
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/shunt
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_shunt
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/shunt.fish
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/shunt/prometheus/,alerts.yml dashboard.json)
	test ! -d $(DESTDIR)$(PREFIX)/share/shunt || find $(DESTDIR)$(PREFIX)/share/shunt -type d -empty -delete
	@conf=$(DESTDIR)$(SYSCONFDIR)/shunt/shunt.toml; \
	if cmp -s packaging/shunt.toml $$conf; then rm -f $$conf; elif test -e $$conf; then echo "kept, because it was changed: $$conf"; fi
	test ! -d $(DESTDIR)$(SYSCONFDIR)/shunt || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(SYSCONFDIR)/shunt

# Static programs in a package that installs on every release with a suitable kernel.
deb:
	@packaging/deps.sh --cross
	$(CARGO_RUN) run --quiet --locked -p xtask -- deb $(ARCH)

deb-check: need-root
	@$(MAKE) --no-print-directory deb ARCH=$$(dpkg --print-architecture)
	packaging/deb/check.sh "$$(ls -t target/deb/shunt_*_$$(dpkg --print-architecture).deb | head -n 1)"

systemd-check: need-root
	@$(MAKE) --no-print-directory deb ARCH=$$(dpkg --print-architecture)
	@packaging/deps.sh --image
	for suite in bookworm trixie; do \
		packaging/deb/systemd.sh "$$(ls -t target/deb/shunt_*_$$(dpkg --print-architecture).deb | head -n 1)" $$suite || exit 1; \
	done

fresh-test: need-root
	@packaging/deps.sh --image
	for suite in bookworm trixie noble; do packaging/fresh.sh $$suite || exit 1; done

# Two builds of the package in different folders are the same, byte for byte.
deb-twice:
	@packaging/deps.sh --cross
	packaging/deb/twice.sh $(ARCH)

# The same programs as an image for hosts of containers.
oci:
	@packaging/deps.sh --cross
	$(CARGO_RUN) run --quiet --locked -p xtask -- oci $(ARCH)

# A disk with a router: Debian, the package, DHCP, DNS, a firewall and the page. docs/guide/install.md has the settings.
image:
	@packaging/deps.sh --cross --image=$(ARCH)
	@$(MAKE) --no-print-directory deb ARCH=$(ARCH)
	packaging/image/build.sh "$$(ls -t target/deb/shunt_*_$(ARCH).deb | head -n 1)" $(SETTINGS)

# With the kernel for guests, which boots sooner.
image-check: need-root
	@$(MAKE) --no-print-directory image ARCH=$(ARCH) SETTINGS=KERNEL=linux-image-cloud-$(ARCH)
	packaging/image/check.sh "$$(ls -t target/image/*-$(ARCH).img | head -n 1)" "$$(ls -t target/deb/shunt_*_$(ARCH).deb | head -n 1)"

# Static programs for this architecture or another one, with what belongs to them.
dist:
	@packaging/deps.sh --cross
	$(CARGO_RUN) run --quiet --locked -p xtask -- dist $(ARCH)

# Daemon and commands of a router in one program, which must not be larger than a small router has room for.
router:
	@packaging/deps.sh --cross
	$(CARGO_RUN) run --quiet --locked -p xtask -- router $(ARCH)

# Some of the tests, with the small program as command and as daemon.
ROUTER_TESTS := binary(forwarding) & test(nat::) | binary(daemon) & test(/^(up_and_down|off_command|why_command|usage_command|previews|external)::/)
ROUTER_BIN := $(CURDIR)/target/router/bin
router-test: test-programs
	@$(MAKE) --no-print-directory router ARCH=$$(dpkg --print-architecture)
	mkdir -p $(ROUTER_BIN)
	cp "$$(ls -t target/router/shunt-router-* | head -n 1)" $(ROUTER_BIN)/shunt
	ln -sf shunt $(ROUTER_BIN)/shuntd
	$(TEST_ENV) SHUNT=$(ROUTER_BIN)/shunt SHUNTD=$(ROUTER_BIN)/shuntd packaging/test.sh -E '$(ROUTER_TESTS)'

openwrt:
	@packaging/deps.sh --cross
	$(CARGO_RUN) run --quiet --locked -p xtask -- openwrt $(ARCH)

openwrt-check: need-root
	@$(MAKE) --no-print-directory openwrt ARCH=$$(dpkg --print-architecture)
	packaging/openwrt/check.sh "$$(ls -t target/openwrt/*.ipk | head -n 1)"

clean:
	$(CARGO_RUN) clean

need-root:
	@test "$$(id -u)" = 0 || { echo "network namespaces need root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }
