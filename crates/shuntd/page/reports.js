// The reports of the lab that the router has.

import { ask, read } from "./api.js";
import { at, button, element, parent, setText } from "./dom.js";
import { bytes } from "./format.js";

async function showList() {
	const reports = await read("/v1/reports");
	at("reports-section").hidden = reports.length === 0;
	at("reports").replaceChildren(...reports.map(({ name, written_s, bytes: size }) => {
		const when = new Date(written_s * 1000).toLocaleString();
		return parent("li", [button(name, () => showOne(name), "link"), ` ${when}, ${bytes(size)}`]);
	}));
}

/** Shows a report in a frame that has an origin of its own: it cannot read this page, nor ask the daemon. */
async function showOne(name) {
	setText(at("report-title"), name);
	setText(at("report-state"), "Reading ...");
	at("report").showModal();
	try {
		const text = await (await ask(`/v1/reports/${encodeURIComponent(name)}`)).text();
		const frame = element("iframe");
		frame.title = `report ${name}`;
		frame.setAttribute("sandbox", "allow-scripts allow-downloads");
		frame.src = "/page/report.html";
		frame.addEventListener("load", () => frame.contentWindow.postMessage(text, "*"), { once: true });
		at("report-page").replaceChildren(frame);
		setText(at("report-state"), "");
	} catch (error) {
		setText(at("report-state"), error.message);
	}
}

export function start() {
	at("report").addEventListener("close", () => at("report-page").replaceChildren());
}

export const source = {
	every_ms: 600000,
	read: showList,
	failed(error) {
		at("reports-section").hidden = false;
		at("reports").replaceChildren(element("li", error.message));
	},
};
