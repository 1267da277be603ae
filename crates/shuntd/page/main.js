// The page: what it reads, and where each answer is shown.

import { read } from "./api.js";
import * as attention from "./attention.js";
import * as changes from "./changes.js";
import { at, setText } from "./dom.js";
import * as flows from "./flows.js";
import { timeWithSeconds } from "./format.js";
import * as history from "./history.js";
import * as hosts from "./hosts.js";
import * as login from "./login.js";
import * as ports from "./ports.js";
import * as readings from "./readings.js";
import * as reasons from "./reasons.js";
import * as reports from "./reports.js";
import { Schedule, Source } from "./schedule.js";
import * as tiles from "./tiles.js";
import { verdict } from "./verdict.js";

async function readStatus() {
	const status = await read("/v1/status");
	login.hide();
	readings.add(status);
	setText(at("instance"), status.instance === "default" ? "" : status.instance);
	const { text, isGood } = verdict(status);
	sayVerdict(text, isGood ? "good" : "");
	document.title = `Shunt ${status.instance}: ${tiles.fastNow()} fast`;
	setText(at("as-of"), `as of ${timeWithSeconds(Date.now())}`);
	for (const part of [tiles, attention, ports, reasons, history, changes, flows]) {
		part.showStatus(status);
	}
}

function sayVerdict(text, className) {
	setText(at("verdict"), text);
	at("verdict").className = className;
}

const sources = {
	status: new Source({
		every_ms: 2000,
		read: readStatus,
		failed: (error) => sayVerdict(`No answer from the daemon: ${error.message}`, "bad"),
	}),
	history: new Source(history.source),
	hosts: new Source(hosts.source),
	flows: new Source(flows.source),
	reports: new Source(reports.source),
};

const schedule = new Schedule(Object.values(sources), () => at("pause").checked || login.isShown(), login.show);

/** Reads a source at once. */
const hurry = (source) => () => {
	source.hurry();
	schedule.wake();
};

at("pause").addEventListener("change", () => schedule.wake());
login.start(() => schedule.wake());
history.start(hurry(sources.history));
hosts.start(hurry(sources.hosts));
flows.start(() => schedule.wake());
changes.start();
reports.start();
schedule.wake();
