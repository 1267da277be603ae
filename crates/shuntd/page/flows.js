// The connections, fast and slow ones, with a search.

import { read } from "./api.js";
import { withCommands } from "./copy.js";
import { at, button, setText } from "./dom.js";
import { bits, bytes, end, plural, pps, time } from "./format.js";
import { Table } from "./table.js";
import { explain } from "./why.js";

// Above this number of flows, the page reads them only when asked.
const MANY_FLOWS = 20000;
const ROWS_AT_ONCE = 50;
// The busiest connections are enough, unless somebody looks for others.
const READ_AT_ONCE = 1000;
// Reasons are asked for the slow connections with the highest rates; a press explains any other.
const EXPLAINED_AT_ONCE = 250;
const PROTOCOLS = { 1: "icmp", 6: "tcp", 17: "udp", 41: "6in4", 47: "gre", 50: "esp", 58: "icmpv6", 132: "sctp" };

let connections = [];
let isOnScreen = false;
let isMany = false;
let hasAll = true;
let isReading = false;
let most = ROWS_AT_ONCE;

const COLUMNS = [
	{ title: "from → to", text: (c) => c.ends, press: explain },
	{ title: "proto", text: (c) => c.proto },
	{ title: "state", text: (c) => c.state },
	{ title: "engine", text: (c) => c.engine },
	{ title: "devices", text: (c) => c.path || "-", isMinor: true },
	{ title: "rate", text: (c) => bits(c.rate_bps), value: (c) => c.rate_bps },
	{ title: "packets", text: (c) => pps(c.rate_pps), value: (c) => c.rate_pps },
	{ title: "total", text: (c) => bytes(c.bytes), value: (c) => c.bytes, isMinor: true },
	{ title: "age", text: (c) => time(c.age_s), value: (c) => c.age_s, isMinor: true },
];
const BUSIEST_FIRST = { column: COLUMNS.find(({ title }) => title === "rate"), down: true };
const table = new Table("flows", "Connections; press one to learn why it is fast or slow", COLUMNS, {
	key: (c) => c.key,
	order: BUSIEST_FIRST,
	sorted: readMore,
});

/** Lists a connection once, also if one direction is fast and the other slow. */
function merged(allFast, allSlow) {
	const name = (orig, reply, proto) => [proto, orig.src, orig.sport, orig.dst, orig.dport, reply.src, reply.sport, reply.dst, reply.dport].join(" ");
	const left = new Map(allSlow.map((one) => [name(one.orig, one.reply, PROTOCOLS[one.protocol] ?? one.protocol), one]));
	const take = (key) => {
		const found = left.get(key);
		left.delete(key);
		return found;
	};
	const shown = allFast.map((one) => {
		const half = take(name(one.orig, one.reply, one.proto));
		const swapped = half ? undefined : take(name(one.reply, one.orig, one.proto));
		return half || swapped ? mixed(one, half ?? swapped, half ? "orig" : "reply") : fast(one);
	});
	return [...shown, ...[...left.values()].map(slow)];
}

/** A connection with a slow direction; `orig` is the name by which the slow part calls the original direction. */
function mixed(connection, { count, directions }, orig) {
	const slowOnes = directions.map(({ dir }) => (dir === orig ? "orig" : "reply"));
	const state = !slowOnes.includes("orig") ? "fast, replies slow" : slowOnes.includes("reply") ? "slow" : "slow, replies fast";
	const sum = (what) => connection[what] + (count?.[what] ?? 0);
	return { ...fast({ ...connection, bytes: sum("bytes"), rate_bps: sum("rate_bps"), rate_pps: sum("rate_pps") }), state: withReason(state, directions) };
}

/** The state, and the reason of the slow direction with more packets. */
function withReason(state, directions) {
	const rate = ({ count }) => count?.rate_pps ?? 0;
	const [first] = [...directions].sort((a, b) => rate(b) - rate(a));
	return first?.because ? `${state}: ${first.because.reason}` : state;
}

function fast(connection) {
	const path = connection.directions.map((d) => `${d.in_port} → ${d.out_port}`).join(", ");
	return listed(connection, { proto: connection.proto, path, engine: connection.engine, ...connection });
}

function slow(connection) {
	const { count, protocol, age_s } = connection;
	const [bytes, rate_bps, rate_pps] = [count?.bytes ?? NaN, count?.rate_bps ?? NaN, count?.rate_pps ?? NaN];
	const proto = PROTOCOLS[protocol] ?? `protocol ${protocol}`;
	const state = withReason(connection.state, connection.directions);
	return listed({ ...connection, state }, { proto, path: "-", engine: "Linux", bytes, rate_bps, rate_pps, age_s: age_s ?? NaN });
}

function listed({ orig, state }, { proto, path, engine, bytes, rate_bps, rate_pps, age_s }) {
	const ends = `${end(orig.src, orig.sport)} → ${end(orig.dst, orig.dport)}`;
	const key = `${proto} ${ends}`;
	return { key, ends, orig, state, proto, path, engine, bytes, rate_bps, rate_pps, age_s };
}

/** Finds the connections that have all words of the search in their texts. */
function show() {
	const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
	const text = (c) => [c.ends, c.proto, c.state, c.engine, c.path].join(" ").toLowerCase();
	const found = words.length ? connections.filter((c) => words.every((word) => text(c).includes(word))) : connections;
	table.show(found, most);
	at("more-flows").hidden = found.length <= most;
	const first = found.length > most ? `the first ${most} of ` : "";
	const all = words.length ? ` of ${connections.length}` : "";
	setText(at("flow-count"), `${first}${found.length}${all}${hasAll ? "" : " busiest"} connections`);
}

function wantsAll() {
	const { column, down } = table.order;
	const isBusiestFirst = column === BUSIEST_FIRST.column && down;
	return !isBusiestFirst || most > READ_AT_ONCE || at("search").value.trim() !== "";
}

/** Reads the connections that were left out, once somebody wants them. */
function readMore() {
	if (!hasAll && !isReading && wantsAll()) {
		readAll().catch(failed);
	}
}

async function readAll() {
	isReading = true;
	try {
		await readSome(wantsAll() ? "" : `&most=${READ_AT_ONCE}`);
	} finally {
		isReading = false;
	}
	readMore();
}

async function readSome(limit) {
	const listed = await read(`/v1/flows?rate_over_ms=500${limit}`);
	const slower = await read(`/v1/slow?rate_over_ms=500&because=${Math.min(most, EXPLAINED_AT_ONCE)}`);
	hasAll = limit === "" || listed.length < READ_AT_ONCE;
	connections = merged(listed, slower.connections);
	setText(at("flow-error"), "");
	showNotes(slower);
	show();
}

/** What the list of slow connections leaves out. */
function showNotes({ counted, more }) {
	const uncounted = "conntrack does not count, so rates of slow connections are not known; turn it on: `sysctl -w net.netfilter.nf_conntrack_acct=1`";
	const notes = [...(counted ? [] : [uncounted]), ...(more ? [`${plural(more, "further slow connection")} not listed`] : [])];
	const text = notes.join("; ");
	if (at("flow-notes").dataset.text !== text) {
		at("flow-notes").dataset.text = text;
		at("flow-notes").replaceChildren(...withCommands(text));
	}
}

const failed = (error) => setText(at("flow-error"), error.message);

/** Connections are read while their list is on the screen. */
export const source = {
	every_ms: 5000,
	read: readAll,
	failed,
	wanted: () => isOnScreen && !isMany,
};

/** Calls `wake` when the list comes onto the screen. */
export function start(wake) {
	at("search").addEventListener("input", () => {
		show();
		readMore();
	});
	at("more-flows").addEventListener("click", () => {
		most += 4 * ROWS_AT_ONCE;
		show();
		readMore();
	});
	at("load-many").append(button("Read the connections", () => readAll().catch(failed)));
	new IntersectionObserver(([seen]) => {
		isOnScreen = seen.isIntersecting;
		if (isOnScreen) {
			wake();
		}
	}).observe(at("flows-section"));
}

export function showStatus({ flows }) {
	isMany = flows.active + flows.static > MANY_FLOWS;
	at("load-many").hidden = !isMany;
}
