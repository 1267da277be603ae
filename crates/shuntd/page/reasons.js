// Why packets are slow: the main reasons, with what to do.

import { withCommands } from "./copy.js";
import { at, saySentence } from "./dom.js";
import { count, pps } from "./format.js";
import { perSecond } from "./readings.js";
import { Table } from "./table.js";

const packetsOf = (status, reason) => status.top_reasons.find((other) => other.reason === reason)?.packets;

function rate({ reason, packets }) {
	return perSecond((status) => packetsOf(status, reason) ?? packets);
}

const table = new Table("reasons", "Packets since the start of the daemon, and in the last seconds", [
	{ title: "reason", text: (top) => top.reason },
	{ title: "packets", text: (top) => count(top.packets), value: (top) => top.packets },
	{ title: "now", text: (top) => pps(rate(top)), value: rate },
	{ title: "meaning", text: (top) => top.meaning, isLong: true },
	{ title: "what to do", text: (top) => top.remedy, parts: (top) => withCommands(top.remedy), isLong: true },
], { key: (top) => top.reason });

export function showStatus({ top_reasons }) {
	saySentence(at("reasons-sentence"), at("reasons"), top_reasons.length ? "" : "No packet was slow.");
	table.show(top_reasons);
}
