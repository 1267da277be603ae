// Quantities as people read them.

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Three significant digits with a prefix: 1.49 M. */
function short(value) {
	const found = PREFIXES.find(([factor]) => value >= factor * 0.9995);
	return found ? `${(value / found[0]).toPrecision(3)} ${found[1]}` : `${Math.round(value)} `;
}

const isKnown = (value) => Number.isFinite(value);
const quantity = (unit) => (value) => (isKnown(value) ? `${short(value)}${unit}`.trim() : "-");

export const count = quantity("");
/** All digits: 5,214. */
export const grouped = (value) => value.toLocaleString("en");
export const bits = quantity("bit/s");
export const pps = quantity("pps");
export const bytes = quantity("B");
export const percent = (share) => (isKnown(share) ? `${(100 * share).toFixed(1)} %` : "-");

/** The two largest units: 3d 4h. */
export function time(seconds) {
	if (!isKnown(seconds)) {
		return "-";
	}
	const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
	const from = units.findIndex(([size]) => seconds >= size);
	const shown = from < 0 ? [[1, "s"]] : units.slice(from, from + 2);
	let left = seconds;
	return shown.map(([size, unit]) => {
		const whole = Math.floor(left / size);
		left -= whole * size;
		return `${whole}${unit}`;
	}).join(" ");
}

const HOUR = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const TODAY = new Intl.DateTimeFormat([], HOUR);
const OTHER_DAY = new Intl.DateTimeFormat([], { weekday: "short", ...HOUR });

const SECONDS = new Intl.DateTimeFormat([], { ...HOUR, second: "2-digit" });

/** The time of day of a number of milliseconds. */
export const timeOfDay = (ms) => TODAY.format(ms);
export const timeWithSeconds = (ms) => SECONDS.format(ms);

/** The same with the day, unless it is today. */
export function clock(ms) {
	const isToday = new Date(ms).toDateString() === new Date().toDateString();
	return (isToday ? TODAY : OTHER_DAY).format(ms);
}

export const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** An address with its port, as a URL has it. */
export function end(address, port) {
	return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
