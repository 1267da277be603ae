// What keeps traffic slow for as long as nobody changes it, and what else the daemon complains about.

import { withCommands } from "./copy.js";
import { at, element, parent } from "./dom.js";
import { time } from "./format.js";

/** A step of the daemon should not take longer. */
const STEP_BOUND_S = 0.005;
let shown = "";

export function showStatus(status) {
	const found = complaints(status);
	const text = JSON.stringify(found);
	if (text === shown) {
		return;
	}
	shown = text;
	at("attention").hidden = found.length === 0;
	at("complaints").replaceChildren(...found.map(([what, remedy]) => {
		const item = parent("li", [element("b", sentence(what))]);
		if (remedy) {
			item.append(" ", ...withCommands(sentence(remedy)));
		}
		return item;
	}));
}

/** Each with a remedy, or without one. */
function complaints(status) {
	return [
		...status.slow_causes.map(({ what, remedy }) => [what, remedy]),
		...(status.off ?? []).map(off),
		...(status.unused_queues ?? []).map(({ port, why, remedy }) => [`the queues of ${port} are not in use: ${why}`, remedy]),
		...(status.unused_keys ?? []).map(({ key, why, remedy }) => [`${key} has no effect: ${why}`, remedy]),
		...(status.not_kept ?? []).map(({ why, loss }) => [why, loss]),
		...(status.unstable_stations ?? []).map(unstable),
		...longStep(status.longest_step),
		...lost(status.counts_lost, "removed flows have lost their counters, so the counts of connections are too low", "raise `max_flows`"),
		...lost(status.log_lines_lost ?? 0, "lines of the log were dropped", ""),
	];
}

function off({ which, left_s }) {
	const conditions = Object.entries(which).filter(([, value]) => value !== null);
	const named = conditions.map(([key, value]) => `${key} ${value}`).join(", ");
	const left = left_s === undefined ? "" : ` for another ${time(60 * Math.ceil(left_s / 60))}`;
	return [`the fast path is off for connections with ${named}${left}`, "turn it on again for all: `shunt on`"];
}

function unstable({ mac, addresses }) {
	const named = [mac, ...addresses.map((address) => `(${address})`)].join(" ");
	return [
		`station ${named} keeps changing its port or its address, so its traffic stays slow`,
		"look for two hosts with one MAC or IP address, or a loop",
	];
}

function longStep(step) {
	if (!step || step.seconds <= STEP_BOUND_S) {
		return [];
	}
	return [[`the daemon was busy or waiting for ${Math.round(step.seconds * 1000)} ms with ${step.name} in the last minute`, ""]];
}

const lost = (number, what, remedy) => (number > 0 ? [[`${number} ${what}`, remedy]] : []);

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
