// What happened: the events of the history, or, without one, what made flows prove themselves again since this page was
// opened.

import { at, element, parent, setText } from "./dom.js";
import { clock } from "./format.js";
import { lastTwo } from "./readings.js";

const ROWS_AT_FIRST = 10;
const ROWS_MOST = 512;
let hasHistory = false;
let isWhole = false;

/** An event as a sentence. The daemon has the words. */
export function text({ text, event, times, last_at }) {
	const said = text || event;
	return `${said.charAt(0).toUpperCase()}${said.slice(1)}${times > 1 ? `, ${times} times until ${clock(last_at * 1000)}` : ""}`;
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
			at("changes").prepend(line(now.at, text({ event: cause, times, last_at: now.at / 1000 }), ""));
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
