// The figures of this moment.

import { at, element, parent, setText } from "./dom.js";
import { bits, bytes, grouped, percent, pps, time } from "./format.js";
import { perSecond, recentShare } from "./readings.js";

const shown = new Map();

export const fastNow = () => percent(recentShare());

export function showStatus(status) {
	const { flows, packets, savings } = status;
	const traffic = (which) => bits(perSecond((s) => 8 * s.bytes[which]));
	const rate = (which) => pps(perSecond((s) => s.packets[which]));
	show("fast now", fastNow(), `${percent(packets.fast_share)} since the start`);
	show("on the fast path", traffic("fast"), rate("fast"));
	show("on the slow path", traffic("slow"), rate("slow"));
	show("CPU saved now", cores(savings), savings?.cores ? interval(savings.cores) : "");
	show("active flows", grouped(flows.active), `of ${grouped(flows.max)} for each of IPv4 and IPv6`);
	show("running for", time(status.uptime_s), `version ${status.version}`);
	setText(at("savings"), [saved(savings), costs(status.costs)].filter(Boolean).join(" "));
}

/** Shows a figure, with a note below. */
function show(name, value, note) {
	if (!shown.has(name)) {
		shown.set(name, add(name));
	}
	setText(shown.get(name).value, value);
	setText(shown.get(name).note, note);
}

function add(name) {
	const [value, note] = [element("b"), element("small")];
	at("tiles").append(parent("div", [element("dt", name), parent("dd", [value, note])]));
	return { value, note };
}

const rounded = (value) => value.toFixed(Math.abs(value) < 1 ? 2 : 1);

function cores(savings) {
	return savings?.cores ? `${savings.at_least ? "at least " : ""}${rounded(savings.cores.value)} cores` : "cannot tell";
}

const interval = ({ low, high }) => `${rounded(low)} to ${rounded(high)}`;

/** The sentences below the figures: what the figures leave out, or why there are none. */
function saved(savings) {
	if (!savings) {
		return "";
	}
	const { cores, unknown, week_core_s: week, week_known_s, not_counted = [], at_least } = savings;
	const hours = ({ value }) => (value / 3600).toPrecision(2);
	return [
		cores ? "" : `Cannot tell what the fast path saves now: ${unknown}.`,
		week ? `Within the last 7 days it saved ${at_least ? "at least " : ""}${hours(week)} core hours (${interval(week3600(week))}), as far as that could be told: in ${time(week_known_s)}.` : "",
		not_counted.length ? `Not counted: ${not_counted.join("; ")}.` : "",
	].filter(Boolean).join(" ");
}

const week3600 = ({ low, high }) => ({ low: low / 3600, high: high / 3600 });

function costs(own) {
	if (!own) {
		return "";
	}
	const programs = Number.isFinite(own.programs_cores) ? `, its programs in the kernel ${percent(own.programs_cores)}` : "";
	return `Shunt itself: the daemon uses ${percent(own.daemon_cores)} of a core${programs}; ${bytes(own.daemon_bytes)} of memory, and ${bytes(own.maps_bytes)} for tables in the kernel.`;
}
