// Why a connection is fast or slow.

import { read } from "./api.js";
import { withCommands } from "./copy.js";
import { at, element, parent } from "./dom.js";
import { time } from "./format.js";

const PROTOCOLS_ASKED = ["tcp", "udp"];

/** Asks about a connection of the list, and shows the answer in a dialog. */
export async function explain({ ends, proto, orig }) {
	at("why-title").textContent = `${proto} ${ends}`;
	say(element("p", "Reading ..."));
	at("why").showModal();
	if (!PROTOCOLS_ASKED.includes(proto)) {
		say(element("p", `Linux forwards ${proto}: only TCP and UDP can be fast.`));
		return;
	}
	try {
		const { src, dst, sport, dport } = orig;
		const { connections } = await read(`/v1/why?${new URLSearchParams({ src, dst, sport, dport, proto })}`);
		const parts = connections.flatMap((one) => one.directions).flatMap(direction);
		say(...(parts.length ? parts : [element("p", "The connection has ended.")]));
	} catch (error) {
		say(element("p", error.message));
	}
}

const say = (...parts) => at("why-text").replaceChildren(...parts);

function direction(why) {
	const heading = element("h3", `${why.dir}: ${state(why)}${since(why)}${path(why)}`);
	if (!why.because) {
		return [heading];
	}
	const { reason, meaning, detail, remedy } = why.because;
	const lines = [element("p", `${reason}: ${meaning}`), parent("p", withCommands(detail)), parent("p", withCommands(remedy))];
	return [heading, ...lines.filter((line) => line.textContent)];
}

function state({ fast, engine, idle }) {
	if (fast) {
		return `fast by ${engine}`;
	}
	if (!idle) {
		return "slow";
	}
	const before = { true: ", was fast", false: ", not fast" }[idle.was_fast];
	return `idle${before ?? ""}`;
}

const since = ({ since_s }) => (Number.isFinite(since_s) ? ` for ${time(since_s)}` : "");
const path = ({ in_port, out_port }) => (in_port && out_port ? `, ${in_port} → ${out_port}` : "");
