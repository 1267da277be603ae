// The ports: both directions, bits and packets.

import { bits, count, percent, pps } from "./format.js";
import { newestRow } from "./history.js";
import { perSecond } from "./readings.js";
import { Table } from "./table.js";

const fastOf = ({ packets }) => packets.xdp + packets.tc + packets.external;
const shareOf = (port) => fastOf(port) / (fastOf(port) + port.packets.slow + port.packets.dropped);

/** What `counted` gives per second for a port. */
function rate(port, counted) {
	return perSecond((status) => counted(status.ports.find(({ name }) => name === port.name) ?? port));
}

function engine({ engine, up, af_xdp_mode }) {
	const mode = af_xdp_mode ? ` (${af_xdp_mode.replace("-", " ")})` : "";
	return `${engine}${mode}${up ? "" : ", link down"}`;
}

/** Rates of the last minute, as the device counts; without a history, what has arrived in the last seconds. */
function direction(port, which) {
	const minute = newestRow()?.ports[port.name];
	if (minute) {
		return { bps: minute[`${which}_bps`], pps: minute[`${which}_pps`] };
	}
	if (which === "out") {
		return { bps: NaN, pps: NaN };
	}
	return {
		bps: rate(port, ({ bytes }) => 8 * (bytes.fast + bytes.slow)),
		pps: rate(port, (now) => fastOf(now) + now.packets.slow),
	};
}

const COLUMNS = [
	{ title: "device", text: ({ name }) => name },
	{ title: "engine", text: engine },
	...["in", "out"].flatMap((which) => [
		{ title: `${which}, bit/s`, text: (port) => bits(direction(port, which).bps), value: (port) => direction(port, which).bps },
		{ title: `${which}, packets`, text: (port) => pps(direction(port, which).pps), value: (port) => direction(port, which).pps },
	]),
	{ title: "fast now", text: (port) => pps(rate(port, fastOf)), value: (port) => rate(port, fastOf), isMinor: true },
	{ title: "slow now", text: (port) => pps(rate(port, ({ packets }) => packets.slow)), value: ({ packets }) => packets.slow, isMinor: true },
	{ title: "dropped", text: ({ packets }) => count(packets.dropped), value: ({ packets }) => packets.dropped, isMinor: true },
	{ title: "fast share", text: (port) => percent(shareOf(port)), value: shareOf },
	{ title: "why this engine", text: ({ engine_reason }) => engine_reason, isLong: true },
];

const table = new Table("ports", "In and out: rates of the last minute, as devices count; fast and slow: packets that arrived in the last seconds", COLUMNS, {
	key: ({ name }) => name,
});

export const showStatus = ({ ports }) => table.show(ports);
