# What a user types. The work is done by cargo, xtask and packaging/deps.sh.

CARGO_RUN := packaging/cargo.sh
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc

.PHONY: build deps test demo bench install clean help need-root

build: deps
	$(CARGO_RUN) build --release --locked -p shunt -p shuntd

help:
	@echo "make build             target/release/shunt and target/release/shuntd"
	@echo "sudo make demo         real traffic without Shunt and with it; KEEP=1 leaves it up"
	@echo "sudo make test         all tests"
	@echo "sudo make bench        target/bench/summary.json; QUICK=1 takes less than a minute"
	@echo "sudo make install      PREFIX=$(PREFIX), DESTDIR=$(DESTDIR)"
	@echo "make deps              distribution packages that are missing"
	@echo "make clean             what was built"

deps:
	@packaging/deps.sh

test: need-root build
	SHUNT_NO_SKIP=1 SHUNT=$(CURDIR)/target/release/shunt SHUNTD=$(CURDIR)/target/release/shuntd \
		$(CARGO_RUN) test --locked --workspace --no-fail-fast

demo: need-root build
	$(CARGO_RUN) run --quiet --locked -p xtask -- demo $(if $(KEEP),--keep)

bench: need-root build
	$(CARGO_RUN) run --quiet --locked -p xtask -- bench $(if $(QUICK),--quick)

install: build
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin target/release/shunt target/release/shuntd
	test -e $(DESTDIR)$(SYSCONFDIR)/shunt/shunt.toml || \
		install -D -m 644 -t $(DESTDIR)$(SYSCONFDIR)/shunt packaging/shunt.toml

clean:
	$(CARGO_RUN) clean

need-root:
	@test "$$(id -u)" = 0 || { echo "network namespaces need root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }
