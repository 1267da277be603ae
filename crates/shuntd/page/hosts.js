// Who uses the line: the traffic of each host.

import { Missing, read } from "./api.js";
import { withCommands } from "./copy.js";
import { at, element, parent, saySentence } from "./dom.js";
import { bytes, clock, count, percent, plural, time } from "./format.js";
import { Table } from "./table.js";

const ROWS_SHOWN = 100;
let most = 1;

const total = ({ sent, received }) => sent.bytes + received.bytes;
const nameOf = ({ name, mac, addresses }) => name ?? addresses[0] ?? mac ?? "?";

function otherNames(host) {
	return [host.mac, ...host.addresses].filter((known) => known && known !== nameOf(host)).join(" ");
}

/** The share of the bytes that took the fast path. */
function fastShare(host) {
	return host.fast && total(host) ? percent(total(host.fast) / total(host)) : "-";
}

/** The bytes, with a bar beside them. */
function bar(host) {
	const made = element("span", "", "bar");
	made.style.width = `${Math.round(100 * total(host) / most)}%`;
	return [parent("span", [parent("span", [made], "track"), element("b", bytes(total(host)))], "share")];
}

const COLUMNS = [
	{ title: "host", text: nameOf },
	{ title: "addresses", text: otherNames, isMinor: true },
	{ title: "download", text: ({ received }) => bytes(received.bytes), value: ({ received }) => received.bytes },
	{ title: "upload", text: ({ sent }) => bytes(sent.bytes), value: ({ sent }) => sent.bytes },
	{ title: "packets down", text: ({ received }) => count(received.packets), value: ({ received }) => received.packets, isMinor: true },
	{ title: "packets up", text: ({ sent }) => count(sent.packets), value: ({ sent }) => sent.packets, isMinor: true },
	{ title: "fast", text: fastShare, value: (host) => (host.fast ? total(host.fast) / total(host) : NaN), isMinor: true },
	{ title: "last seen", text: ({ seen }) => clock(seen * 1000), value: ({ seen }) => seen, isMinor: true },
	{ title: "total", text: (host) => `${total(host)} of ${most}`, parts: bar, value: total },
];

const table = new Table("hosts", "Bytes from the IP header on, as the host sees them", COLUMNS, {
	key: ({ name, mac, addresses }) => mac ?? addresses[0] ?? name,
	order: { column: COLUMNS.find(({ title }) => title === "total"), down: true },
});

async function readUsage() {
	const usage = await read(`/v1/usage?span=${at("hosts-span").value}`);
	most = Math.max(1, ...usage.hosts.map(total));
	const nothing = usage.hosts.length ? "" : "No host has sent or received anything in this time.";
	saySentence(at("hosts-sentence"), at("hosts-table"), nothing);
	table.show(usage.hosts, ROWS_SHOWN);
	const text = notes(usage).join(" ");
	if (at("hosts-notes").dataset.text !== text) {
		at("hosts-notes").dataset.text = text;
		at("hosts-notes").replaceChildren(...withCommands(text));
	}
}

/** What the table leaves out. */
function notes({ from, to, counted_s, incomplete, accounting, hosts, others, merged_hosts, router, total: all }) {
	const missing = to - from - counted_s;
	return [
		missing > 120 ? `Not counted: ${time(missing)} of this time, in which Shunt did not run or kept no ledger.` : "",
		incomplete ? "Incomplete: Shunt ended without writing what it had counted last, so all of these are too small." : "",
		accounting ? "" : "Only the fast path is counted, because conntrack does not count: `sysctl -w net.netfilter.nf_conntrack_acct=1`.",
		hosts.length > ROWS_SHOWN ? `${plural(hosts.length - ROWS_SHOWN, "further host")} not shown.` : "",
		merged_hosts ? `${plural(merged_hosts, "host")} that used least, together: ${bytes(total(others))}.` : "",
		total(router) ? `The router itself: ${bytes(total(router))}.` : "",
		all.fast ? `The fast path took ${bytes(all.fast.bytes)} of ${bytes(all.received.bytes)} that the ports received.` : "The fast part is not known: some of this time was counted by an earlier version.",
		all.not_attributed.bytes ? `Of no known host: ${bytes(all.not_attributed.bytes)} of ${bytes(all.received.bytes)} that the ports received.` : "",
	].filter(Boolean);
}

export const source = {
	every_ms: 60000,
	read: readUsage,
	failed(error) {
		const why = error instanceof Missing ? `This daemon does not count hosts: ${error.message}` : `Cannot read who uses the line: ${error.message}`;
		saySentence(at("hosts-sentence"), at("hosts-table"), why);
	},
};

/** Calls `again` when another time was chosen. */
export function start(again) {
	at("hosts-span").addEventListener("change", again);
}
