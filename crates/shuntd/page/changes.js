// What happened: the events of the history, or, without one, what made flows prove themselves again since this page was
// opened.

import { at, element, parent, setText } from "./dom.js";
import { clock } from "./format.js";
import { lastTwo } from "./readings.js";

const ROWS_AT_FIRST = 10;
const ROWS_MOST = 512;
const TEXTS = {
	"started": ({ version, after_crash }) => `The daemon started, version ${version}${after_crash ? "; the one before was killed or lost its power" : ""}`,
	"stopped": ({ by }) => `The daemon was stopped by ${by}`,
	"engine": ({ port, from, to, why }) => (from ? `${port}: engine ${to} instead of ${from}: ${why}` : `${port}: a port, engine ${to}: ${why}`),
	"port-removed": ({ port }) => `${port}: no longer a port`,
	"port-up": ({ port }) => `${port}: up`,
	"port-down": ({ port }) => `${port}: down, or without carrier`,
	"held": ({ why }) => `Learning off: ${why}`,
	"released": () => "Learning on again: no rule stops it",
	"invalidated": ({ cause }) => `Flows invalidated by a change of kind ${cause}`,
	"off-added": ({ which }) => `Fast path turned off for ${which}`,
	"off-removed": ({ which }) => `Fast path on again for ${which}`,
	"fault": ({ what }) => `Fault: ${what}`,
	"clock-set": ({ by_s }) => `The clock was set ${by_s < 0 ? "back" : "forward"} by ${Math.abs(by_s)} s`,
};

let hasHistory = false;
let isWhole = false;

/** An event as a sentence. */
export function text(event) {
	const known = TEXTS[event.event];
	const times = event.times > 1 ? `, ${event.times} times until ${clock(event.last_at * 1000)}` : "";
	return `${known ? known(event) : event.event}${times}`;
}

/** Shows the events of the history, the newest first. */
export function showEvents(events) {
	hasHistory = true;
	setText(at("changes-note"), events.length ? "What happened within the last day, and why." : "Nothing has changed within the last day.");
	at("changes").replaceChildren(...events.map((event) => line(event.at * 1000, text(event), event.event)).reverse());
	showFirst();
}

/** Hides the earlier ones, until somebody asks for all. */
function showFirst() {
	[...at("changes").children].forEach((item, nth) => {
		item.hidden = !isWhole && nth >= ROWS_AT_FIRST;
	});
	at("more-changes").hidden = isWhole || at("changes").children.length <= ROWS_AT_FIRST;
}

export function start() {
	at("more-changes").addEventListener("click", () => {
		isWhole = true;
		showFirst();
	});
}

/** Notes causes that moved the epoch between the last two readings. */
export function showStatus() {
	const two = lastTwo();
	if (hasHistory || !two) {
		return;
	}
	const [before, now] = two;
	for (const [cause, count] of Object.entries(now.status.epoch_moves)) {
		const times = count - (before.status.epoch_moves[cause] ?? 0);
		if (times > 0) {
			at("changes").prepend(line(now.at, text({ event: "invalidated", cause, times, last_at: now.at / 1000 }), ""));
		}
	}
	[...at("changes").children].slice(ROWS_MOST).forEach((old) => old.remove());
	showFirst();
}

function line(ms, said, className) {
	const time = element("time", clock(ms));
	time.dateTime = new Date(ms).toISOString();
	return parent("li", [time, element("span", said)], className);
}
