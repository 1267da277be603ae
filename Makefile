# What a user types. The work is done by cargo, xtask and packaging/deps.sh.

CARGO_RUN := packaging/cargo.sh
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
ARCH ?= amd64

.PHONY: bench-peers browser-test build deps dist kernel-test mlrsearch test demo bench install clean help need-root

build: deps
	$(CARGO_RUN) build --release --locked -p shunt -p shuntd

help:
	@echo "make build             target/release/shunt and target/release/shuntd"
	@echo "sudo make demo         real traffic without Shunt and with it; KEEP=1 leaves it up"
	@echo "sudo make test         all tests; SHUNT_SOAK_MINUTES=1 for the soak, 5 where CI=true"
	@echo "sudo make bench        target/bench/summary.json; QUICK=1 takes less than a minute"
	@echo "make bench-peers       beside other fast paths, in instructions: target/bench/peers.json; XDP_FORWARD=PROGRAM, QUICK=1"
	@echo "sudo make install      PREFIX=$(PREFIX), DESTDIR=$(DESTDIR)"
	@echo "make dist ARCH=$(ARCH)   a tarball with static programs in target/dist; amd64, arm64 or armv7"
	@echo "make mlrsearch         the Python package that the search is tested against (target/mlrsearch)"
	@echo "make browser-test      the page of shunt report in a browser, which is installed for it"
	@echo "make kernel-test       some of the tests on the newest Debian kernel, in QEMU; part of make test"
	@echo "make deps              distribution packages that are missing"
	@echo "make clean             what was built"

deps:
	@packaging/deps.sh

# The reference implementation of MLRsearch, which ours is compared with.
MLRSEARCH := tests/search/requirements.txt
target/mlrsearch/installed: $(MLRSEARCH)
	python3 -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $(MLRSEARCH)
	touch $@

mlrsearch: target/mlrsearch/installed

# Where that package is out of reach, the comparison with it says so and is left out.
test: need-root build
	-@$(MAKE) --no-print-directory mlrsearch
	SHUNT_NO_SKIP=1 SHUNT=$(CURDIR)/target/release/shunt SHUNTD=$(CURDIR)/target/release/shuntd \
		$(CARGO_RUN) test --locked --workspace --no-fail-fast
	@$(MAKE) --no-print-directory kernel-test

# Some of the tests on the newest kernel of the list. Where QEMU or the kernel cannot be had, it says so and leaves them out.
kernel-test: build
	@packaging/deps.sh --vm || true
	$(CARGO_RUN) run --quiet --locked -p xtask -- kernels --short --timeout 480

# Apart from the other tests, since a browser takes 300 MB, and only the page of `shunt report` needs one.
browser-test: deps
	packaging/browser.sh
	SHUNT_BROWSER_TEST=1 $(CARGO_RUN) test --locked -p shunt --test report

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
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 docs/man/*.1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man5 docs/man/*.5
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man8 docs/man/*.8
	sed 's,/usr/local/,$(PREFIX)/,' packaging/shuntd@.service | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/shuntd@.service
	target/release/shunt completions bash | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/bash-completion/completions/shunt
	target/release/shunt completions zsh | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_shunt
	target/release/shunt completions fish | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/shunt.fish
	test -e $(DESTDIR)$(SYSCONFDIR)/shunt/shunt.toml || \
		install -D -m 644 -t $(DESTDIR)$(SYSCONFDIR)/shunt packaging/shunt.toml

# Static programs for this architecture or another one, with what belongs to them.
dist:
	@packaging/deps.sh --cross
	$(CARGO_RUN) run --quiet --locked -p xtask -- dist $(ARCH)

clean:
	$(CARGO_RUN) clean

need-root:
	@test "$$(id -u)" = 0 || { echo "network namespaces need root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }
