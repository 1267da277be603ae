'use strict';
'require fs';
'require poll';
'require ui';
'require view';

// Children of elements are always in arrays: LuCI takes a string for HTML, and names of hosts come from the LAN.

const PROGRAM = '/usr/sbin/shunt';

// The answer of `shunt --json`, or { error: text }.
function ask(words) {
	return fs.exec(PROGRAM, ['--json'].concat(words)).then(
		(done) => {
			try {
				const answer = JSON.parse(done.code ? done.stderr : done.stdout);
				return answer.error ? { error: answer.error.message, code: answer.error.code } : answer;
			} catch (e) {
				return { error: done.stderr || _('no answer') };
			}
		},
		(e) => ({ error: e.message })
	);
}

// Instead of a row of titles, a phone shows the title of each cell above it.
function table(titles, rows) {
	const cell = (text, nth) => E('td', text && titles[nth] ? { class: 'td', 'data-title': titles[nth] } : { class: 'td' }, [text]);
	return E('table', { class: 'table' }, [
		E('tr', { class: 'tr table-titles' }, titles.map((title) => E('th', { class: 'th' }, [title]))),
		...rows.map((row) => E('tr', { class: 'tr' }, row.map(cell)))
	]);
}

const end = (address, port) => (address.includes(':') ? '[%s]:%d' : '%s:%d').format(address, port);
const percent = (share) => (share == null ? '-' : '%.1f %%'.format(100 * share));
const rate = (bits) => (bits ? '%1000.1mbit/s'.format(bits) : '-');

function ports(status) {
	return table(
		[_('Port'), _('Engine'), _('Why this engine'), _('Fast bytes'), _('Slow packets')],
		status.ports.map((port) => [
			port.name, port.engine || '-', port.engine_reason || '', percent(port.bytes.fast_share), String(port.packets.slow)
		])
	);
}

// A rule of `shunt off`: the address alone if it is for all connections of a host.
const isOfHost = ({ which }) => which.src && Object.keys(which).length == 1;
const rule = (off) => isOfHost(off) ? off.which.src : Object.entries(off.which).map(([name, value]) => '%s %s'.format(name, value)).join(', ');

const isLocal = ({ addr }) => /^(127\.|::1$)/.test(addr);

function reasons(status) {
	return table(
		[_('Packets'), _('Why Linux forwards them'), _('What to do')],
		(status.top_reasons || []).map((one) => [String(one.packets), one.meaning, one.remedy])
	);
}

return view.extend({
	load() {
		return Promise.all([ask(['status']), ask(['flows', '--by', 'host', '--limit', '100'])]);
	},

	// Turns the fast path off or on for a host.
	turn(way, host, list) {
		// LuCI takes the focus from a button while it works.
		this.pressed = { host, list };
		return ask([way, host]).then((answer) => {
			if (answer.error)
				ui.addNotification(null, E('p', {}, [answer.error]), 'error');
			return this.refresh();
		});
	},

	// The button of a host in one of the tables; nothing for those who may only look.
	button(way, address, list) {
		if (!L.hasViewPermission())
			return '';
		const label = way == 'off' ? _('Turn off') : _('Turn on');
		return E('button', {
			class: 'btn', 'data-host': address, 'data-list': list, 'aria-label': '%s %s'.format(label, address),
			click: ui.createHandlerFn(this, 'turn', way, address, list)
		}, [label]);
	},

	hosts(status, hosts) {
		const isOff = (address) => (status.off || []).some((off) => isOfHost(off) && off.which.src == address);
		return table(
			[_('Host'), _('Sends'), _('Receives'), _('Connections'), ''],
			hosts.filter((host) => !isLocal(host)).map((host) => [
				host.name ? '%s (%s)'.format(host.name, host.addr) : host.addr,
				rate(host.sent_bps), rate(host.received_bps), String(host.connections),
				this.button(isOff(host.addr) ? 'on' : 'off', host.addr, 'hosts')
			])
		);
	},

	// What is off, also if it has no connections now.
	rules(off) {
		return [
			E('h3', {}, [_('Turned off')]),
			table([_('Connections'), _('Until'), ''], off.map((one) => [
				rule(one),
				one.left_s == null ? _('somebody turns it on') : _('%t from now').format(one.left_s),
				isOfHost(one) ? this.button('on', one.which.src, 'rules') : _('remove it with `shunt on`')
			]))
		];
	},

	// Explains the connections of the address that was typed.
	why(field, place) {
		const address = field.value.trim();
		const say = (...nodes) => place.replaceChildren(...nodes);
		if (!/^[0-9a-fA-F.:]+$/.test(address)) {
			say(E('p', {}, [_('Type an IP address.')]));
			return Promise.resolve();
		}
		return ask(['why', address]).then((answer) => {
			if (answer.error)
				return say(E('p', {}, [answer.error]));
			const rows = answer.connections.flatMap((one) => one.directions.map((way) => {
				const { meaning, detail, remedy } = way.because || {};
				return [
					'%s → %s'.format(end(way.src, way.sport), end(way.dst, way.dport)),
					way.fast ? _('fast') : _('slow'),
					[meaning, detail].filter(Boolean).join('; '), remedy || ''
				];
			}));
			say(
				table([_('Direction'), _('Path'), _('Why'), _('What to do')], rows),
				...(answer.more ? [E('p', {}, [_('%d more connections are not shown.').format(answer.more)])] : [])
			);
		});
	},

	show([status, hosts]) {
		if (status.error)
			return [E('div', { class: 'alert-message warning' }, [
				E('p', {}, [status.error]),
				...(status.code == 'not-running' ? [E('p', {}, [_('On OpenWrt: set the option enabled to 1 in /etc/config/shunt, then type: service shunt reload')])] : [])
			])];
		const share = status.bytes.fast_share;
		const off = status.off || [];
		return [
			E('p', {}, [
				(share == null ? _('No packet has been counted.') : _('%s of the bytes are fast.').format(percent(share))) + ' ' +
				_('%d flows of %d. Shunt %s, instance %s.').format(
					status.flows.active, status.flows.max, status.version, status.instance)
			]),
			E('h3', {}, [_('Ports')]), ports(status),
			...(off.length ? this.rules(off) : []),
			E('h3', {}, [_('Hosts')]),
			hosts.error ? E('p', {}, [hosts.error]) : this.hosts(status, hosts),
			E('h3', {}, [_('What stays slow')]), reasons(status)
		];
	},

	// Shows the latest answers. The focus stays on the button of a host, which is another one then.
	refresh() {
		const asked = this.asked = (this.asked || 0) + 1;
		return this.load().then((answers) => {
			// Another refresh has asked later.
			if (asked != this.asked)
				return;
			const active = document.activeElement;
			const last = this.now.contains(active) ? active.dataset : active == document.body && this.pressed;
			this.now.replaceChildren(...this.show(answers));
			const buttons = last ? [...this.now.querySelectorAll('button')].filter((one) => one.dataset.host == last.host) : [];
			const button = buttons.find((one) => one.dataset.list == last.list) || buttons[0];
			if (button)
				button.focus({ preventScroll: true });
			this.pressed = null;
		});
	},

	render(answers) {
		this.now = E('div', {}, this.show(answers));
		const place = E('div', { role: 'status' }, []);
		const field = E('input', {
			type: 'text', class: 'cbi-input-text', placeholder: '192.168.1.2', 'aria-label': _('IP address'),
			keydown: (event) => event.key == 'Enter' && button.click()
		}, []);
		const button = E('button', { class: 'btn', click: ui.createHandlerFn(this, 'why', field, place) }, [_('Explain')]);
		poll.add(() => this.refresh(), 5);
		return E('div', {}, [
			E('h2', {}, [_('Fast path')]), this.now,
			E('h3', {}, [_('Why is a connection slow?')]), field, ' ', button, place
		]);
	},

	handleSaveApply: null,
	handleSave: null,
	handleReset: null
});
