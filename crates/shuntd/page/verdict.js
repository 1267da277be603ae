// The first line: whether traffic is fast, or why not. It says what `shunt status` says, without figures: it is read
// aloud whenever it changes.

import { plural } from "./format.js";

export function verdict(status) {
	const causes = status.slow_causes.length;
	const named = causes === 1 ? "one lasting cause of slow traffic is" : `${plural(causes, "lasting cause")} of slow traffic are`;
	const below = causes ? `; ${named} below` : "";
	return { text: `${state(status)}${below}.`, isGood: status.packets.fast > 0 && causes === 0 };
}

function state({ ports, packets, ruleset }) {
	if (ports.length === 0) {
		return "Nothing can be fast: this instance has no port";
	}
	if (packets.fast + packets.slow + packets.dropped === 0) {
		return "Cannot tell yet: no packet has arrived through a port";
	}
	if (packets.fast > 0) {
		return "Traffic is fast";
	}
	const isHeld = [4, 6].every((family) => ruleset.held.includes(family));
	return isHeld ? "Nothing is fast: learning is off" : "Nothing is fast yet: all packets so far took the slow path";
}
