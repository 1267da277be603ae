// A day of history and of usage, and what Shunt costs, as the daemon answers.
"use strict";

const MINUTE = 60;
const EVENTS = [
	[0.1, { event: "started", text: "the daemon started, version 0.1.0" }],
	[0.11, { event: "engine", text: "eth0: a port, engine xdp: the driver redirects natively and no qdisc shapes here" }],
	[0.3, { event: "invalidated", text: "flows invalidated by a change of kind route" }, 14],
	[0.45, { event: "held", text: "learning off: `queue` in ip fw forward handle 12 must see every packet" }],
	[0.47, { event: "released", text: "learning on again: no rule stops it" }],
	[0.6, { event: "port-down", text: "eth1: link down" }],
	[0.605, { event: "port-up", text: "eth1: up" }],
	[0.7, { event: "engine", text: "eth1: engine tc instead of xdp: its root qdisc is cake, which shapes" }],
	[0.8, { event: "fault", text: "<img src=x> cannot read the flow table" }],
	[0.9, { event: "off-added", text: "fast path turned off for --src 192.168.1.9" }],
	[0.95, { event: "a-kind-of-a-later-version" }],
];

/** Like the traffic of a home: little at night, most in the evening. */
function traffic(at) {
	const hour = (at / 3600) % 24;
	return 0.15 + 0.8 * Math.max(0, Math.sin((hour - 8) / 16 * Math.PI)) * (0.75 + 0.25 * Math.sin(at / 400));
}

function rates(share) {
	const bps = Math.round(9.4e8 * share);
	return { in_bps: bps, in_pps: Math.round(bps / 9600), out_bps: Math.round(bps / 9), out_pps: Math.round(bps / 20000) };
}

/** The history of a daemon that has kept one for `age_s`. */
function history(for_s, most, age_s) {
	const now = Math.floor(Date.now() / 1000);
	const step = Math.max(MINUTE, Math.ceil(for_s / most / MINUTE) * MINUTE);
	const rows = [];
	for (let at = now - Math.min(for_s, age_s); at < now; at += step) {
		const share = traffic(at);
		const isHeld = at > now - 0.55 * 86400 && at < now - 0.53 * 86400;
		// The daemon did not run in this time.
		if (at > now - 0.97 * 86400 && at < now - 0.9 * 86400) {
			continue;
		}
		const fast_share = isHeld ? 0.05 : 0.995;
		const fast = Math.round(rates(share).in_pps * step * fast_share);
		rows.push({
			at, seconds: step, fast, slow: Math.round(fast / fast_share - fast), dropped: 0, fast_share, ...rates(share),
			ports: { eth0: rates(share), eth1: rates(share / 9) }, reasons: { miss: 1000 },
		});
	}
	const events = EVENTS.map(([share, what, times = 1]) => {
		const at = now - Math.round((1 - share) * 86400);
		return { at, last_at: at + (times > 1 ? 500 : 0), times, ...what };
	});
	return { now, rows, events: events.filter(({ at }) => at >= now - for_s), memory_bytes: 700000 };
}

const counts = (bytes) => ({ packets: Math.round(bytes / 900), bytes });
// A host may give itself any name.
const NAMES = ["laptop", "television", "<script>x</script>", "nas", null, "phone", "printer", "doorbell"];

function usage() {
	const now = Math.floor(Date.now() / 1000);
	const hosts = NAMES.map((name, nth) => ({
		name, mac: nth === 4 ? null : `02:00:00:00:00:${nth}0`, addresses: [`192.168.1.${nth + 2}`, ...(nth % 2 ? [] : [`2001:db8:1:2:0:ff:fe00:${nth}`])],
		seen: now - 40 * nth, sent: counts(Math.round(9e9 / (nth + 1) ** 2)), received: counts(Math.round(8e10 / (nth + 1) ** 2)), steps: [],
		fast: { sent: counts(Math.round(8e9 / (nth + 1) ** 2)), received: counts(Math.round(7e10 / (nth + 1) ** 2)) },
	}));
	const nothing = counts(0);
	return {
		from: now - 86400, to: now, now, step_s: 3600, counted_s: 80000, accounting: false, hosts, others: { sent: counts(1e6), received: counts(2e6) },
		merged_hosts: 3, router: { sent: counts(3e6), received: counts(4e7) },
		total: { received: counts(1.5e11), local: nothing, transit: nothing, not_attributed: counts(1e9), fast: counts(1.3e11) }, steps: [],
	};
}

const COSTS = { daemon_cores: 0.004, programs_cores: 0.11, daemon_bytes: 12400000, maps_bytes: 61000000, flow_bytes: 460 };

module.exports = { history, usage, COSTS };
