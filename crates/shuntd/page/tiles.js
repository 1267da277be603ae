// The figures of this moment.

import { at, element, parent, setText } from "./dom.js";
import { bits, bytes, grouped, percent, pps, time } from "./format.js";
import { perSecond, recentShare } from "./readings.js";

const shown = new Map();

export const fastNow = () => percent(recentShare());

export function showStatus(status) {
	const { flows, packets } = status;
	const traffic = (which) => bits(perSecond((s) => 8 * s.bytes[which]));
	const rate = (which) => pps(perSecond((s) => s.packets[which]));
	show("fast now", fastNow(), `${percent(packets.fast_share)} since the start`);
	show("on the fast path", traffic("fast"), rate("fast"));
	show("on the slow path", traffic("slow"), rate("slow"));
	show("active flows", grouped(flows.active), `of ${grouped(flows.max)} for each of IPv4 and IPv6`);
	show("running for", time(status.uptime_s), `version ${status.version}`);
	setText(at("savings"), savings(status.savings));
	setText(at("costs"), costs(status.costs));
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

/** What Shunt itself costs; empty if the daemon does not say. */
function costs(own) {
	if (!own) {
		return "";
	}
	const programs = `, its programs in the kernel ${programsOf(own)}`;
	const daemon = own.daemon_cores === undefined ? "the CPU time of the daemon is not measured yet" : `the daemon uses ${percent(own.daemon_cores)} of a core`;
	return `Shunt itself, over ten seconds: ${daemon}${programs}${weekOf(own)}; ${bytes(own.daemon_bytes)} of memory, and ${bytes(own.maps_bytes)} for tables in the kernel.`;
}

/** What Shunt has cost this week; empty if nothing was counted. */
function weekOf({ week }) {
	if (!week?.counted_hours) {
		return "";
	}
	const programs = week.programs_hours ? `, programs ${coreTime(week.programs_core_hours)}` : "";
	const counted = time(Math.round(week.counted_hours * 3600));
	return `; this week: daemon ${coreTime(week.daemon_core_hours)}${programs} in ${counted} counted`;
}

/** The part of a core that the programs use, or since when that is unknown. */
function programsOf({ programs_cores, unmeasured_since }) {
	if (Number.isFinite(programs_cores)) {
		return percent(programs_cores);
	}
	const since = ({ port, from, to }) => ` since ${port} went from ${from} to ${to}`;
	return `were not measured yet${unmeasured_since ? since(unmeasured_since) : ""}`;
}

/** What the fast path saves; empty if the daemon does not say. */
function savings(saved) {
	if (!saved) {
		return "";
	}
	const now = saved.now_cores
		? `The fast path saves about ${cores(saved.now_cores.value)} now (${doubt(saved.now_cores)}, over ten seconds).`
		: "What the fast path saves now: cannot tell; shunt status says why.";
	const week = saved.week_core_hours
		? ` This week: ${coreTime(saved.week_core_hours.value)} in ${time(Math.round(saved.week_counted_hours * 3600))} counted (${doubt(saved.week_core_hours)}).`
		: "";
	return now + week;
}

const cores = (value) => (value < 1.05 ? `${round(value)} of a core` : `${round(value)} cores`);

function coreTime(hours) {
	const seconds = hours * 3600;
	if (seconds >= 3600) {
		return `${round(hours)} core hours`;
	}
	return seconds >= 60 ? `${round(seconds / 60)} core minutes` : `${round(seconds)} core seconds`;
}

const round = (value) => String(Number(value.toPrecision(2)));
const doubt = ({ value, low, high }) => `± ${Math.ceil((100 * (high - low)) / 2 / Math.abs(value))} %`;
