"use strict";

const STATUS_MS = 2000;
// Five minutes of readings.
const HISTORY = 150;
// Above this number of flows, the page reads them only when asked.
const MANY_FLOWS = 20000;
const ROWS_SHOWN = 200;

const at = (id) => document.getElementById(id);
const token = takeToken();
const readings = [];
let connections = [];
let order = { column: "rate", down: true };

/** The token of the address, which then leaves the address: it should not be in bookmarks. */
function takeToken() {
	const typed = new URLSearchParams(location.search).get("token");
	if (typed) {
		sessionStorage.setItem("token", typed);
		window.history.replaceState(null, "", location.pathname);
	}
	return sessionStorage.getItem("token");
}

async function ask(path) {
	const headers = token ? { authorization: `Bearer ${token}` } : {};
	const answer = await fetch(path, { headers, signal: AbortSignal.timeout(15000) });
	if (!answer.ok) {
		const body = await answer.json();
		throw new Error(body.error ? body.error.message : `${answer.status} ${answer.statusText}`);
	}
	return answer;
}

const read = async (path) => (await ask(path)).json();

function element(tag, text, className) {
	const made = document.createElement(tag);
	made.textContent = text;
	if (className) {
		made.className = className;
	}
	return made;
}

function row(cells) {
	const line = document.createElement("tr");
	line.append(...cells.map((cell) => (cell instanceof Node ? cell : element("td", cell))));
	return line;
}

const number = (text) => element("td", text, "n");

/** Three significant digits with a prefix: 1.49 M. */
function short(value) {
	for (const [factor, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
		if (value >= factor * 0.9995) {
			return `${(value / factor).toPrecision(3)} ${prefix}`;
		}
	}
	return `${Math.round(value)} `;
}

const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : "-");

function time(seconds) {
	const parts = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
	const from = parts.findIndex(([size]) => seconds >= size);
	const shown = from < 0 ? [[1, "s"]] : parts.slice(from, from + 2);
	let left = seconds;
	return shown.map(([size, unit]) => {
		const count = Math.floor(left / size);
		left -= count * size;
		return `${count}${unit}`;
	}).join(" ");
}

/** Counts per second between the last two readings, or null. */
function perSecond(read_count) {
	const [before, now] = readings.slice(-2);
	if (!now || before.status.pid !== now.status.pid) {
		return null;
	}
	return Math.max(0, (read_count(now.status) - read_count(before.status)) * 1000 / (now.at - before.at));
}

function rate(count, unit = "") {
	const value = perSecond(count);
	return value === null ? "-" : `${short(value)}${unit}`.trim();
}

function showStatus() {
	const { status } = readings.at(-1);
	at("instance").textContent = status.instance === "default" ? "" : status.instance;
	document.title = `Shunt ${status.instance}: ${percent(recentShare())} fast`;
	const { flows } = status;
	const tiles = [
		["fast now", percent(recentShare())],
		["fast since the start", percent(status.packets.fast_share)],
		["fast", rate((s) => s.packets.fast, "pps")],
		["slow", rate((s) => s.packets.slow, "pps")],
		["on the fast path", rate((s) => 8 * s.bytes.fast, "bit/s")],
		["active flows", `${flows.active} of ${flows.max}`],
		["running for", time(status.uptime_s)],
	];
	at("tiles").replaceChildren(...tiles.map(([name, value]) => {
		const tile = document.createElement("div");
		tile.append(element("b", value), element("span", name));
		return tile;
	}));
	showPorts(status);
	showReasons(status);
	const points = readings.slice(1).map((_, n) => between(readings[n], readings[n + 1]));
	chart(at("share"), [["fast", points.map((p) => 100 * p.share)]], 100, "Share of packets on the fast path in percent");
	chart(at("rate"), [["fast", points.map((p) => p.fast)], ["slow", points.map((p) => p.slow)]], 0, "Fast and slow packets per second");
}

function between(before, now) {
	const seconds = (now.at - before.at) / 1000;
	const change = (which) => Math.max(0, now.status.packets[which] - before.status.packets[which]);
	const [fast, slow] = [change("fast"), change("slow")];
	return { share: fast / (fast + slow + change("dropped")), fast: fast / seconds, slow: slow / seconds };
}

function recentShare() {
	const [before, now] = readings.slice(-2);
	return now ? between(before, now).share : NaN;
}

function showPorts(status) {
	at("ports").tBodies[0].replaceChildren(...status.ports.map((port) => {
		const { packets } = port;
		const fast = packets.xdp + packets.tc + packets.external;
		const same = (s) => s.ports.find((other) => other.name === port.name)?.packets ?? packets;
		const state = port.up ? port.engine : `${port.engine}, link down`;
		return row([
			port.name,
			state,
			number(rate((s) => same(s).xdp + same(s).tc + same(s).external)),
			number(rate((s) => same(s).slow)),
			number(String(packets.dropped)),
			number(percent(fast / (fast + packets.slow + packets.dropped))),
			port.engine_reason,
		]);
	}));
}

function showReasons(status) {
	const rows = status.top_reasons.map((top) => row([
		top.reason,
		number(short(top.packets).trim()),
		number(rate((s) => s.top_reasons.find((other) => other.reason === top.reason)?.packets ?? top.packets)),
		top.meaning,
		top.remedy,
	]));
	at("reasons").tBodies[0].replaceChildren(...(rows.length ? rows : [row(["no packet was slow"])]));
}

/** Draws lines of values, the newest at the right. `top` is the upper end, or 0 for that of the values. */
function chart(svg, lines, top, label) {
	const [width, height, left] = [600, 160, 64];
	const values = lines.flatMap(([, points]) => points).filter(Number.isFinite);
	const high = top || niceTop(Math.max(2, ...values));
	const x = (n) => left + (width - left - 4) * (n + HISTORY - lines[0][1].length) / (HISTORY - 1);
	const y = (value) => 8 + (height - 32) * (1 - value / high);
	const parts = [0, high / 2, high].map((tick) =>
		`<path class="rule" d="M${left} ${y(tick)}H${width}"/><text x="${left - 6}" y="${y(tick) + 5}" text-anchor="end">${short(tick)}</text>`);
	for (const [name, points] of lines) {
		let pen = "M";
		const path = points.map((value, n) => {
			if (!Number.isFinite(value)) {
				pen = "M";
				return "";
			}
			const step = `${pen}${x(n).toFixed(1)} ${y(value).toFixed(1)}`;
			pen = "L";
			return step;
		});
		parts.push(`<path class="${name}" d="${path.join("")}"/>`);
	}
	const span = time(HISTORY * STATUS_MS / 1000);
	parts.push(`<text x="${left}" y="${height - 2}">${span} ago</text><text x="${width - 4}" y="${height - 2}" text-anchor="end">now</text>`);
	svg.innerHTML = parts.join("");
	const last = lines.map(([name, points]) => `${name} ${Number.isFinite(points.at(-1)) ? short(points.at(-1)).trim() : "unknown"}`);
	svg.setAttribute("aria-label", `${label}; now ${last.join(", ")}`);
}

/** The next of 1, 2, 5, 10 ... that is not less. */
function niceTop(value) {
	const power = 10 ** Math.floor(Math.log10(value));
	return power * [1, 2, 5, 10].find((digit) => digit * power >= value);
}

function noteChanges() {
	const [before, now] = readings.slice(-2);
	if (!now || before.status.pid !== now.status.pid) {
		return;
	}
	for (const [cause, count] of Object.entries(now.status.epoch_moves)) {
		const more = count - (before.status.epoch_moves[cause] ?? 0);
		if (more > 0) {
			const when = new Date(now.at).toLocaleTimeString();
			at("changes").prepend(element("li", `${when} ${cause}${more > 1 ? `, ${more} times` : ""}`));
		}
	}
	[...at("changes").children].slice(50).forEach((old) => old.remove());
}

const COLUMNS = [
	{ key: "flow", title: "from → to", of: (c) => `${end(c.orig.src, c.orig.sport)} → ${end(c.orig.dst, c.orig.dport)}` },
	{ key: "proto", title: "proto", of: (c) => c.proto },
	{ key: "path", title: "devices", of: (c) => c.directions.map((d) => `${d.in_port} → ${d.out_port}`).join(", ") },
	{ key: "engine", title: "engine", of: (c) => c.engine },
	{ key: "state", title: "state", of: (c) => c.state },
	{ key: "rate", title: "bit/s", of: (c) => short(c.rate_bps).trim(), value: (c) => c.rate_bps },
	{ key: "pps", title: "pps", of: (c) => short(c.rate_pps).trim(), value: (c) => c.rate_pps },
	{ key: "bytes", title: "bytes", of: (c) => short(c.bytes).trim(), value: (c) => c.bytes },
	{ key: "age", title: "age", of: (c) => time(c.age_s), value: (c) => c.age_s },
];

const end = (address, port) => (address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);

function showFlows() {
	const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
	const text = (c) => COLUMNS.map((column) => column.of(c)).join(" ").toLowerCase();
	const found = connections.filter((c) => {
		const searched = words.length ? text(c) : "";
		return words.every((word) => searched.includes(word));
	});
	const { of, value } = COLUMNS.find((column) => column.key === order.column);
	const compare = value ? (a, b) => value(a) - value(b) : (a, b) => of(a).localeCompare(of(b), "en", { numeric: true });
	found.sort((a, b) => (order.down ? -1 : 1) * compare(a, b));
	const rows = found.slice(0, ROWS_SHOWN).map((connection) => row(COLUMNS.map((column) => {
		const cell = element("td", column.of(connection), column.value ? "n" : "");
		if (column.key === "flow") {
			const button = element("button", cell.textContent);
			button.addEventListener("click", () => showWhy(connection));
			cell.replaceChildren(button);
		}
		return cell;
	})));
	at("list").tBodies[0].replaceChildren(...rows);
	const shown = found.length > ROWS_SHOWN ? `the first ${ROWS_SHOWN} of ` : "";
	at("count").textContent = `${shown}${found.length} of ${connections.length} connections`;
}

function showHeads() {
	at("list").tHead.rows[0].replaceChildren(...COLUMNS.map((column) => {
		const head = element("th", "", column.value ? "n" : "");
		const button = element("button", column.title);
		button.addEventListener("click", () => {
			order = { column: column.key, down: order.column === column.key ? !order.down : Boolean(column.value) };
			showHeads();
			showFlows();
			at("list").tHead.rows[0].cells[COLUMNS.indexOf(column)].firstChild.focus();
		});
		if (order.column === column.key) {
			head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
			button.textContent += order.down ? " ↓" : " ↑";
		}
		head.append(button);
		return head;
	}));
}

async function showWhy(connection) {
	const { src, dst, sport, dport } = connection.orig;
	at("why-title").textContent = `${connection.proto} ${end(src, sport)} → ${end(dst, dport)}`;
	at("why-text").replaceChildren(element("p", "Reading ..."));
	at("why").showModal();
	try {
		const query = new URLSearchParams({ src, dst, sport, dport, proto: connection.proto });
		const { connections: explained } = await read(`/v1/why?${query}`);
		const directions = explained.flatMap((one) => one.directions);
		const parts = directions.flatMap((why) => {
			const since = why.since_s === null || why.since_s === undefined ? "" : ` for ${time(why.since_s)}`;
			const path = why.in_port && why.out_port ? `, ${why.in_port} → ${why.out_port}` : "";
			const idle = why.idle ? `idle, was ${why.idle.was_fast ? "fast" : "slow"}` : "slow";
			const said = [element("h3", `${why.dir}: ${why.fast ? `fast by ${why.engine}` : idle}${since}${path}`)];
			if (why.because) {
				const { reason, meaning, detail, remedy } = why.because;
				said.push(element("p", `${reason}: ${meaning}`), element("p", detail), element("p", remedy));
			}
			return said;
		});
		at("why-text").replaceChildren(...(parts.length ? parts : [element("p", "The connection has ended.")]));
	} catch (error) {
		at("why-text").replaceChildren(element("p", error.message));
	}
}

/** The reports that the router has. Their list is read once. */
async function showReports() {
	const reports = await read("/v1/reports");
	at("reports-section").hidden = reports.length === 0;
	at("reports").replaceChildren(...reports.map((report) => {
		const button = element("button", report.name);
		button.addEventListener("click", () => showReport(report.name));
		const when = new Date(report.written_s * 1000).toLocaleString();
		const item = document.createElement("li");
		item.append(button, ` ${when}, ${short(report.bytes).trim()}B`);
		return item;
	}));
}

/** Shows a report in a frame that cannot read this page. */
async function showReport(name) {
	at("report-title").textContent = name;
	at("report-state").textContent = "Reading ...";
	at("report-page").srcdoc = "";
	at("report").showModal();
	try {
		at("report-page").srcdoc = await (await ask(`/v1/reports/${encodeURIComponent(name)}`)).text();
		at("report-state").textContent = "";
	} catch (error) {
		at("report-state").textContent = error.message;
	}
}

async function readFlows() {
	connections = await read("/v1/flows?rate_over_ms=500");
	showFlows();
}

async function turn() {
	const status = await read("/v1/status");
	readings.push({ at: Date.now(), status });
	if (readings.length > HISTORY + 1) {
		readings.shift();
	}
	noteChanges();
	showStatus();
	const many = status.flows.active + status.flows.static > MANY_FLOWS;
	at("load").hidden = !many;
	if (!many) {
		await readFlows();
	}
}

/** One turn after the other, so that a slow answer is not asked for twice. */
async function run() {
	if (!at("pause").checked && !document.hidden) {
		try {
			await turn();
			at("state").textContent = `as of ${new Date().toLocaleTimeString()}`;
			at("state").className = "";
		} catch (error) {
			at("state").textContent = `no answer: ${error.message}`;
			at("state").className = "bad";
		}
	}
	setTimeout(run, STATUS_MS);
}

at("search").addEventListener("input", showFlows);
at("load").addEventListener("click", () => readFlows().catch((error) => { at("count").textContent = error.message; }));
showHeads();
showReports().catch((error) => {
	at("reports-section").hidden = false;
	at("reports").replaceChildren(element("li", error.message));
});
run();
