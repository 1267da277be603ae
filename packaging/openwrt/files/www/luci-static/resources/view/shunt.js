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
				return answer.error ? { error: answer.error.message } : answer;
			} catch (e) {
				return { error: done.stderr || _('no answer') };
			}
		},
		(e) => ({ error: e.message })
	);
}

function table(heads, rows) {
	const cell = (kind) => (text) => E(kind, { class: kind }, [text]);
	return E('table', { class: 'table' }, [
		E('tr', { class: 'tr table-titles' }, heads.map(cell('th'))),
		...rows.map((row) => E('tr', { class: 'tr' }, row.map(cell('td'))))
	]);
}

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
	turn(way, address) {
		return ask([way, address]).then((answer) => {
			if (answer.error)
				ui.addNotification(null, E('p', {}, [answer.error]), 'error');
			return this.refresh();
		});
	},

	hosts(status, hosts) {
		const isOff = (address) =>
			(status.off || []).some(({ which }) => which.src == address && Object.keys(which).length == 1);
		return table(
			[_('Host'), _('Sends'), _('Receives'), _('Connections'), ''],
			hosts.map((host) => {
				const way = isOff(host.addr) ? 'on' : 'off';
				return [
					host.name ? '%s (%s)'.format(host.name, host.addr) : host.addr,
					rate(host.sent_bps), rate(host.received_bps), String(host.connections),
					E('button', { class: 'btn', click: ui.createHandlerFn(this, 'turn', way, host.addr) },
						[way == 'off' ? _('Turn off') : _('Turn on')])
				];
			})
		);
	},

	// Explains the connections of the address that was typed.
	why(field, place) {
		const address = field.value.trim();
		if (!/^[0-9a-fA-F.:]+$/.test(address)) {
			place.replaceChildren(E('p', {}, [_('Type an IP address.')]));
			return Promise.resolve();
		}
		return ask(['why', address]).then((answer) => {
			if (answer.error) {
				place.replaceChildren(E('p', {}, [answer.error]));
				return;
			}
			const rows = answer.connections.flatMap((one) => one.directions.map((way) => [
				'%s:%d → %s:%d'.format(way.src, way.sport, way.dst, way.dport),
				way.fast ? _('fast') : _('slow'),
				way.because ? way.because.meaning : '', way.because ? way.because.remedy : ''
			]));
			place.replaceChildren(table([_('Direction'), '', _('Why'), _('What to do')], rows));
		});
	},

	show([status, hosts]) {
		if (status.error)
			return [E('p', { class: 'alert-message warning' }, [status.error])];
		return [
			E('p', {}, [
				_('%s of the bytes are fast; %d flows of %d. Shunt %s, instance %s.').format(
					percent(status.bytes.fast_share), status.flows.active, status.flows.max, status.version, status.instance)
			]),
			E('h3', {}, [_('Ports')]), ports(status),
			E('h3', {}, [_('Hosts')]),
			hosts.error ? E('p', {}, [hosts.error]) : this.hosts(status, hosts),
			E('h3', {}, [_('What stays slow')]), reasons(status)
		];
	},

	refresh() {
		return this.load().then((answers) => this.now.replaceChildren(...this.show(answers)));
	},

	render(answers) {
		this.now = E('div', {}, this.show(answers));
		const place = E('div', {}, []);
		const field = E('input', { type: 'text', class: 'cbi-input-text', placeholder: '192.168.1.2' }, []);
		poll.add(() => this.refresh(), 5);
		return E('div', {}, [
			E('h2', {}, [_('Fast path')]), this.now,
			E('h3', {}, [_('Why is a connection slow?')]), field, ' ',
			E('button', { class: 'btn', click: ui.createHandlerFn(this, 'why', field, place) }, [_('Explain')]), place
		]);
	},

	handleSaveApply: null,
	handleSave: null,
	handleReset: null
});
