// The plots: of the last minutes from readings of the status, of the last day from the daemon's history.

import { Missing, read } from "./api.js";
import * as changes from "./changes.js";
import { at, setText } from "./dom.js";
import { bits, percent, pps } from "./format.js";
import { Plot } from "./plot.js";
import * as readings from "./readings.js";

const LIVE_S = 300;
const LIVE_GAP_MS = 15000;
/** More rows than this are merged by the daemon. */
const ROWS = 288;
const DAY_S = 86400;
/** A longer time between two rows is a gap, in which no daemon counted. */
const GAP_S = 90;

const plots = {
	bits: new Plot(at("plot-bits"), bits),
	packets: new Plot(at("plot-packets"), pps),
	share: new Plot(at("plot-share"), percent),
};

let table = null;
let missing = "";
let hasChosen = false;

/** The newest row of the history: rates of the ports in the last minute. */
export const newestRow = () => table?.rows.at(-1);

const span = () => Number(document.forms.span.elements.for.value);
const port = () => at("plot-port").value;

/** Draws again what has changed. */
export function showStatus(status) {
	showPorts(status.ports.map(({ name }) => name));
	if (missing || span() === LIVE_S) {
		showLive();
	}
}

function showPorts(names) {
	const known = [...at("plot-port").options].slice(1).map(({ value }) => value);
	if (known.join() !== names.join()) {
		const chosen = port();
		at("plot-port").replaceChildren(new Option("all ports", ""), ...names.map((name) => new Option(name, name)));
		at("plot-port").value = names.includes(chosen) ? chosen : "";
	}
}

function showLive() {
	const to = Date.now();
	const time = { from: to - LIVE_S * 1000, to, gap_ms: LIVE_GAP_MS };
	const of = (status) => (port() ? status.ports.find(({ name }) => name === port()) : status);
	const packets = (status, which) => (port() ? portPackets(of(status))[which] : status.packets[which]);
	const course = (counted) => readings.course((status) => (of(status) ? counted(status) : NaN));
	const fastAndSlow = (counted) => ["fast", "slow"].map((which) => ({ name: which, style: which, points: course((s) => counted(s, which)) }));
	plots.bits.show({ ...time, lines: fastAndSlow((s, which) => 8 * of(s).bytes[which]) });
	const rates = fastAndSlow(packets);
	plots.packets.show({ ...time, lines: rates });
	const share = rates[0].points.map(([ms, fast], nth) => [ms, known(fast / (fast + rates[1].points[nth][1]))]);
	plots.share.show({ ...time, lines: [{ name: "fast", style: "fast", points: share }] });
}

function portPackets(found) {
	const { xdp, tc, external, slow } = found?.packets ?? {};
	return { fast: xdp + tc + external, slow };
}

const known = (value) => (Number.isFinite(value) ? value : null);

function showHistory() {
	const rows = table.rows;
	const to = table.now * 1000;
	const from = to - span() * 1000;
	const step_ms = Math.max(60000, span() * 1000 / ROWS);
	const marks = table.events.map((event) => ({ at: event.at * 1000, text: changes.text(event) }));
	const time = { from, to, gap_ms: 2.5 * step_ms, marks: marks.filter((mark) => mark.at >= from) };
	const points = (value) => rows.flatMap((row, nth) => {
		const point = [(row.at + row.seconds / 2) * 1000, known(value(row))];
		const ended = nth ? rows[nth - 1].at + rows[nth - 1].seconds : row.at;
		return row.at > ended + GAP_S ? [[ended * 1000, null], point] : [point];
	});
	const of = (row) => (port() ? row.ports[port()] : row);
	const inAndOut = (unit) => [["in", "fast"], ["out", "out"]].map(([name, style]) => ({ name, style, points: points((row) => of(row)?.[`${name}_${unit}`]) }));
	if (rows.length === 0) {
		Object.values(plots).forEach((plot) => plot.say("The history has no minute yet: come back in a minute."));
		return;
	}
	plots.bits.show({ ...time, lines: inAndOut("bps") });
	plots.packets.show({ ...time, lines: inAndOut("pps") });
	plots.share.show({ ...time, lines: [{ name: "fast, all ports", style: "fast", points: points((row) => row.fast_share) }] });
}

function show() {
	if (missing || span() === LIVE_S) {
		showLive();
	} else if (table) {
		showHistory();
	}
}

/** The events are those of a day, the rows those of the chosen span. */
async function readHistory() {
	const for_s = span() === LIVE_S ? 3600 : span();
	table = await read(`/v1/history?for_s=${for_s}&rows=${ROWS}`);
	const day = for_s === DAY_S ? table : await read(`/v1/history?for_s=${DAY_S}&rows=1`);
	changes.showEvents(day.events);
	if (!hasChosen) {
		fitSpan(day.rows.length ? day.now - day.rows[0].at : 0);
	}
	setMissing("", "");
}

/** Shows the shortest time that holds the whole history, so that a young one is no line at the edge. */
function fitSpan(age_s) {
	const spans = [...document.forms.span.elements.for].map(({ value }) => Number(value));
	document.forms.span.elements.for.value = spans.find((span_s) => span_s >= age_s) ?? DAY_S;
}

/** Without a history, there is no other time to choose. */
function setMissing(why, note) {
	missing = why;
	setText(at("plot-note"), note);
	document.forms.span.querySelector("fieldset").hidden = Boolean(why);
	show();
}

export const source = {
	every_ms: 60000,
	read: readHistory,
	failed(error) {
		const why = error instanceof Missing ? "This daemon keeps no history" : `Cannot read the history (${error.message})`;
		setMissing(why, `${why}: the plots show the time since this page was opened, at most five minutes, and what leaves the ports is not known.`);
	},
};

/** Calls `wake` when another span was chosen. */
export function start(wake) {
	document.forms.span.addEventListener("change", ({ target }) => {
		hasChosen ||= target !== at("plot-port");
		if (target === at("plot-port") || span() === LIVE_S) {
			show();
		} else {
			wake();
		}
	});
}
