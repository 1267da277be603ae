// Checks the page in a browser: page.cjs ADDRESS TOKEN BROWSER DIRECTORY. Prints one line for each fault, and saves
// pictures in the directory.
"use strict";
const { chromium } = require("playwright-core");
const http = require("http");
const path = require("path");
const { COSTS, history, usage } = require("./sample.cjs");

const [address, token, executablePath, directory] = process.argv.slice(2);
const port = address.split(":").at(-1);
const url = `http://${address}/`;
const SCREENS = [
	{ name: "phone", width: 390, height: 844 },
	{ name: "tablet", width: 820, height: 1180 },
	{ name: "desktop", width: 1280, height: 800 },
];
const PATIENCE = 20_000;

let wrong = 0;
function say(text) {
	wrong += 1;
	console.log(text);
}

function check(holds, text) {
	if (!holds) {
		say(text);
	}
}

/** Runs in the page: what is cut off, hidden or overlaps. */
function faults() {
	const found = [];
	const root = document.documentElement;
	const isShown = (one) => one.getClientRects().length > 0;
	if (root.scrollWidth > root.clientWidth) {
		found.push(`${root.scrollWidth} px wide, the window ${root.clientWidth}`);
	}
	for (const one of document.body.querySelectorAll("*")) {
		const box = one.getBoundingClientRect();
		if (isShown(one) && !one.matches(".skip, thead, thead *, #said") && (box.right > root.clientWidth + 0.5 || box.left < -0.5)) {
			found.push(`${one.tagName} ${one.id} ${one.textContent.slice(0, 20)}: ${Math.round(box.left)} to ${Math.round(box.right)} px`);
		}
	}
	for (const cell of document.querySelectorAll("th, td")) {
		const box = cell.getBoundingClientRect();
		if (isShown(cell) && box.height > 6 * box.width && cell.textContent) {
			found.push(`"${cell.textContent.slice(0, 30)}" has no room: ${Math.round(box.width)} px`);
		}
	}
	const plots = [...document.querySelectorAll("svg")];
	if (plots.length !== 3) {
		found.push(`${plots.length} plots`);
	}
	for (const plot of plots) {
		const area = plot.getBoundingClientRect();
		const of = plot.getAttribute("aria-label").split(".")[0];
		const texts = [...plot.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
		if (area.width < 250 || texts.length < 5 || plot.querySelectorAll("path[class]").length < 5) {
			found.push(`${of}: ${area.width} px, ${texts.length} labels`);
		}
		for (const [nth, [name, box]] of texts.entries()) {
			if (box.left < area.left - 0.5 || box.right > area.right + 0.5 || box.top < area.top - 0.5 || box.bottom > area.bottom + 0.5) {
				found.push(`${of}: "${name}" is cut off`);
			}
			for (const [other_name, other] of texts.slice(nth + 1)) {
				if (box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom) {
					found.push(`${of}: "${name}" and "${other_name}" overlap`);
				}
			}
		}
	}
	// What one opens the page for.
	for (const [what, selector, expected] of [
		["fast share", "#tiles dd", /^9\d\.\d %/], ["fast bits", "#tiles", /bit\/s/], ["fast packets", "#tiles", /kpps/], ["costs", "#costs", /0\.4 % of a core/],
		["port, bits", "#ports", /eth0[^]*Mbit\/s/], ["port, packets", "#ports", /kpps/], ["host", "#hosts", /television[^]*GB/],
		["slow connection", "#flows", /1194[^]*slow: cannot-tell[^]*Mbit\/s/], ["remedy", "#reasons", /ethtool -K PORT gro off/], ["change", "#changes", /engine tc instead of xdp/],
	]) {
		const node = document.querySelector(selector);
		if (!isShown(node) || !expected.test(node.textContent)) {
			found.push(`${what} is not shown`);
		}
	}
	for (const table of document.querySelectorAll("table")) {
		const heads = [...table.querySelectorAll("th")];
		if (!table.caption || heads.length === 0 || heads.some((head) => !head.scope)) {
			found.push(`table ${table.id}: no caption or scope`);
		}
	}
	if (document.querySelector("#page img, #page td script, dialog img")) {
		found.push("a text became markup");
	}
	return found;
}

/** Opens the page as someone who has a token, with a day of history. */
async function open(browser, options, { at = `${url}#token=${token}`, answers = true, age_s = 86400, allowed = /status of 40[14]|ERR_FAILED/ } = {}) {
	const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, permissions: ["clipboard-read", "clipboard-write"], ...options });
	const page = await context.newPage();
	page.asked = [];
	page.on("request", (request) => page.asked.push(new URL(request.url()).pathname));
	page.on("pageerror", (error) => say(`${at}: ${error}`));
	page.on("request", (request) => check(/^data:/.test(request.url()) || new URL(request.url()).host === new URL(at).host, `asks for ${request.url()}`));
	page.on("console", (message) => check(message.type() !== "error" || allowed.test(message.text()), `console: ${message.text()}`));
	await page.route(/\/v1\/(history|usage)/, (route) => {
		const query = new URL(route.request().url()).searchParams;
		if (!answers) {
			return route.fulfill({ status: 404, json: { error: { code: "bad-request", message: "`usage` of the configuration is false" } } });
		}
		return route.fulfill({ json: route.request().url().includes("history") ? history(Number(query.get("for_s")), Number(query.get("rows")), age_s) : usage() });
	});
	const withCosts = async (route) => {
		// Node.js does not know the names that only the browser resolves.
		const response = await route.fetch({ url: `${url}v1/status` });
		const status = await response.json();
		await route.fulfill({ response, json: answers && response.ok() ? { ...status, costs: COSTS } : status });
	};
	// It fails if the page is closed meanwhile.
	await page.route("**/v1/status", (route) => withCosts(route).catch(() => {}));
	await page.goto(at);
	return page;
}

const answered = (page, path) => page.waitForResponse((response) => response.url().includes(path) && response.ok(), { timeout: PATIENCE });
const settled = (page) => page.waitForFunction(() => /kpps/.test(document.querySelector("#tiles")?.textContent ?? ""), null, { timeout: PATIENCE });
const text = (page, selector) => page.locator(selector).innerText();

async function looks(browser) {
	for (const { name, width, height } of SCREENS) {
		for (const colorScheme of ["light", "dark"]) {
			const page = await open(browser, { viewport: { width, height }, colorScheme });
			await settled(page);
			await page.screenshot({ path: path.join(directory, `page-${name}-${colorScheme}-top.png`) });
			await page.locator("#flows-title").scrollIntoViewIfNeeded();
			await page.locator("#flows tbody tr").first().waitFor({ timeout: PATIENCE });
			(await page.evaluate(faults)).forEach((fault) => say(`${name}, ${colorScheme}: ${fault}`));
			await page.screenshot({ path: path.join(directory, `page-${name}-${colorScheme}.png`), fullPage: true });
			await page.context().close();
		}
	}
}

/** Everything is reached and done by keys. */
async function keys(browser) {
	const page = await open(browser, {});
	await settled(page);
	const focused = () => page.evaluate(() => `${document.activeElement.tagName} ${document.activeElement.textContent.slice(0, 40)}`);
	await page.keyboard.press("Tab");
	check((await focused()).includes("Skip"), `first: ${await focused()}`);
	await page.keyboard.press("Enter");
	await page.locator("#flows tbody tr").first().waitFor({ timeout: PATIENCE });
	await page.keyboard.press("Tab");
	await page.keyboard.type("udp 192.168.1.7");
	await page.waitForFunction(() => document.querySelector("#flows tbody").children.length < 10);
	for (let nth = 0; nth < 20 && !/192\.168/.test(await focused()); nth += 1) {
		await page.keyboard.press("Tab");
	}
	const connection = await focused();
	check(/192\.168/.test(connection), `no connection by keys: ${connection}`);
	await answered(page, "/v1/slow");
	check(await focused() === connection, "the focus is lost when the list is read again");
	await page.keyboard.press("Enter");
	await page.locator("#why h3").waitFor({ timeout: PATIENCE });
	check(/slow for 1m 15s, eth0 → eth1/.test(await text(page, "#why")), `why: ${await text(page, "#why")}`);
	await page.screenshot({ path: path.join(directory, "page-why.png") });
	await page.keyboard.press("Escape");
	check(await focused() === connection, "the focus is not back after the dialog");
	const head = page.locator("#flows thead th", { hasText: "packets" });
	await head.locator("button").press("Enter");
	check(await head.getAttribute("aria-sort") === "descending", "not sorted by keys");
	await page.locator("#plot-bits svg").focus();
	await page.keyboard.press("ArrowLeft");
	check(/: in [\d.]+ \w?bit\/s, out/.test(await text(page, "#plot-bits .readout")), `no value of a moment: ${await text(page, "#plot-bits .readout")}`);
	await page.locator("#plot-bits summary").press("Enter");
	await page.locator("#plot-bits tbody tr").nth(10).waitFor({ timeout: PATIENCE });
	await page.getByLabel("5 minutes").check();
	await page.waitForFunction(() => /fast/.test(document.querySelector("#plot-bits .keys").textContent));
	await page.context().close();
}

/** A screen reader hears what changed, not each figure. */
async function announcements(browser) {
	const page = await open(browser, {});
	await settled(page);
	await page.evaluate(() => {
		window.heard = [];
		const note = (records) => records.forEach(({ target }) => window.heard.push(target.textContent));
		document.querySelectorAll("[role=status], [role=alert], [aria-live=polite]").forEach((live) => {
			new MutationObserver(note).observe(live, { childList: true, characterData: true, subtree: true });
		});
	});
	for (let nth = 0; nth < 3; nth += 1) {
		await answered(page, "/v1/status");
	}
	check((await page.evaluate(() => window.heard)).length === 0, `heard: ${await page.evaluate(() => window.heard)}`);
	await page.route("**/v1/status", (route) => route.abort());
	await page.waitForFunction(() => window.heard.length > 0, null, { timeout: PATIENCE });
	check(/No answer/.test(await text(page, "#verdict")), `verdict: ${await text(page, "#verdict")}`);
	await page.context().close();
}

/** A young history is shown over a time that it fills, until somebody chooses another. */
async function young(browser) {
	for (const [age_s, label] of [[120, "5 minutes"], [1200, "1 hour"], [86400, "1 day"]]) {
		const page = await open(browser, {}, { age_s });
		await page.waitForFunction((wanted) => document.querySelector("[name=for]:checked").parentNode.textContent.trim() === wanted, label, { timeout: PATIENCE })
			.catch(() => say(`a history of ${age_s} s is not shown over ${label}`));
		const again = answered(page, "/v1/history");
		await page.getByLabel("6 hours").check();
		await again;
		check(await page.getByLabel("6 hours").isChecked(), "the chosen time was changed");
		await page.context().close();
	}
}

async function copies(browser) {
	// A page of localhost has a clipboard, one of another name has not.
	for (const at of [`${url}#token=${token}`, `http://router.test:${port}/#token=${token}`]) {
		const page = await open(browser, {}, { at });
		await settled(page);
		const said = page.waitForFunction(() => /Copied: ethtool/.test(document.querySelector("#said").textContent), null, { timeout: PATIENCE });
		await page.getByLabel("Copy: ethtool -K PORT gro off").click();
		await said.catch((error) => say(`${at}: ${error}`));
		await page.locator("#search").focus();
		await page.keyboard.press("Control+V");
		check(await page.locator("#search").inputValue() === "ethtool -K PORT gro off", `${at}: copied ${await page.locator("#search").inputValue()}`);
		await page.context().close();
	}
}

/** What is not known is a sentence, not an empty plot. */
async function missing(browser) {
	const page = await open(browser, { viewport: { width: 390, height: 844 } }, { answers: false });
	await settled(page);
	await page.waitForFunction(() => /keeps no history/.test(document.querySelector("#plot-note").textContent), null, { timeout: PATIENCE });
	await page.waitForFunction(() => /does not count hosts: .usage./.test(document.querySelector("#hosts-sentence").textContent), null, { timeout: PATIENCE });
	check(!await page.locator("#hosts-table").isVisible(), "an empty table of hosts");
	check(/fast/.test(await text(page, "#plot-bits .summary")), "no plot of the last minutes");
	await page.screenshot({ path: path.join(directory, "page-missing.png"), fullPage: true });
	await page.context().close();
	const plain = await (await browser.newContext({ javaScriptEnabled: false })).newPage();
	await plain.goto(url);
	check(/shunt status/.test(await text(plain, "noscript")), "without scripts, nothing is said");
	await plain.context().close();
}

/** A hidden or paused page asks nothing, and a page that shows no list of connections does not read it. */
async function rest(browser) {
	const page = await open(browser, {});
	await settled(page);
	await page.locator("#changes li").first().waitFor({ timeout: PATIENCE });
	await answered(page, "/v1/status");
	check(!page.asked.some((path) => /v1.(flows|slow)/.test(path)), `asked for connections that nobody sees: ${page.asked}`);
	const quiet = async (what, begin, end) => {
		await page.evaluate(begin);
		const before = page.asked.length;
		await page.clock.fastForward(3_600_000);
		check(page.asked.length === before, `${what}: asked ${page.asked.slice(before)}`);
		const again = answered(page, "/v1/status");
		await page.evaluate(end);
		await again;
	};
	await page.clock.install();
	await page.evaluate(() => {
		let hidden = false;
		Object.defineProperty(document, "hidden", { get: () => hidden });
		window.hide = (whether) => {
			hidden = whether;
			document.dispatchEvent(new Event("visibilitychange"));
		};
	});
	await quiet("hidden", () => window.hide(true), () => window.hide(false));
	await quiet("paused", () => document.querySelector("#pause").click(), () => document.querySelector("#pause").click());
	await page.context().close();
}

/** The token: typed, kept for the tab, and nowhere else. */
async function login(browser) {
	const page = await open(browser, {}, { at: url });
	await page.getByLabel("Token").waitFor({ timeout: PATIENCE });
	check(!await page.locator("#page").isVisible(), "the page is shown without a token");
	await page.screenshot({ path: path.join(directory, "page-login.png") });
	await page.getByLabel("Token").fill("wrong-token-of-someone");
	await page.keyboard.press("Enter");
	await page.waitForFunction(() => /wrong/.test(document.querySelector("#login-error").textContent), null, { timeout: PATIENCE });
	check(await page.evaluate(() => sessionStorage.length) === 0, "a wrong token is kept");
	await page.getByLabel("Token").fill(token);
	await page.keyboard.press("Enter");
	await settled(page);
	for (const nth of [1, 2]) {
		await page.reload();
		await settled(page);
		check(!await page.locator("#login").isVisible(), `reload ${nth}: the token is asked for again`);
	}
	await page.goto(`${url}?token=${token}`);
	await settled(page);
	check(page.url() === url, `the address has the token: ${page.url()}`);
	const kept = { cookies: await page.context().cookies(), local: await page.evaluate(() => ({ ...localStorage })), cookie: await page.evaluate(() => document.cookie) };
	check(JSON.stringify(kept) === '{"cookies":[],"local":{},"cookie":""}', `kept for longer than the tab: ${JSON.stringify(kept)}`);
	const other = await page.context().newPage();
	await other.goto(url);
	await other.getByLabel("Token").waitFor({ timeout: PATIENCE });
	await page.bringToFront();
	await page.getByRole("button", { name: "Sign out" }).click();
	await page.getByLabel("Token").waitFor({ timeout: PATIENCE });
	check(await page.evaluate(() => sessionStorage.length) === 0, "signed out, and the token is still kept");
	await page.context().close();
}

/** What other sites can do with the browser of somebody who has signed in. */
async function others(browser) {
	const got = [];
	const server = http.createServer((request, response) => {
		got.push(request.headers);
		response.setHeader("content-type", "text/html");
		response.end("<!DOCTYPE html><title>another site</title>");
	});
	await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
	const page = await open(browser, {});
	await settled(page);
	// Another site; the same host at another port; and a name of another site that leads to the daemon.
	for (const origin of [`http://evil.example:${server.address().port}`, `http://127.0.0.1:${server.address().port}`]) {
		const other = await page.context().newPage();
		await other.goto(origin);
		const tried = await other.evaluate(async (target) => {
			const load = (tag, attributes) => new Promise((ended) => {
				const made = Object.assign(document.createElement(tag), attributes);
				made.onload = () => ended("loaded");
				made.onerror = () => ended("failed");
				document.body.append(made);
			});
			const frame = load("iframe", { src: target });
			const opened = window.open(target);
			await frame;
			const reads = (make) => {
				try {
					return make();
				} catch (error) {
					return error.name;
				}
			};
			return {
				fetched: await fetch(`${target}v1/status`).then(() => "answered", () => "failed"),
				blind: await fetch(`${target}v1/status`, { mode: "no-cors" }).then((answer) => answer.type, () => "failed"),
				script: await load("script", { src: `${target}page/main.js`, type: "module" }),
				framed: reads(() => frames[0].document.title),
				opened: reads(() => opened.sessionStorage.length),
				storage: sessionStorage.length,
			};
		}, url);
		const expected = { fetched: "failed", blind: "opaque", script: "failed", framed: "SecurityError", opened: "SecurityError", storage: 0 };
		check(JSON.stringify(tried) === JSON.stringify(expected), `${origin}: ${JSON.stringify(tried)}`);
		await other.close();
	}
	const rebound = await page.context().newPage();
	const refused = await rebound.goto(`http://evil.example:${port}/`);
	check(refused.status() === 403, `by another name: ${refused.status()}`);
	check(await rebound.evaluate(() => fetch("/v1/status").then((answer) => answer.status)) === 403, "by another name: data");
	check(await rebound.evaluate(() => sessionStorage.length) === 0, "another name has the token");
	check(got.length > 0 && got.every((headers) => !JSON.stringify(headers).includes(token)), "another port of the host gets the token");
	server.close();
	await page.context().close();
}

/** A report is shown as it is, and can neither read the page nor ask the daemon. */
async function reports(browser) {
	const page = await open(browser, {}, { allowed: /Content Security Policy|sandboxed/ });
	await settled(page);
	await page.getByRole("button", { name: "a.html" }).click();
	const frame = page.frameLocator("#report-page iframe");
	await frame.locator("body[data-tried]").waitFor({ timeout: PATIENCE });
	const tried = JSON.parse(await frame.locator("body").getAttribute("data-tried"));
	check(JSON.stringify(tried) === '{"page":"SecurityError","storage":"SecurityError","asked":"refused","origin":"null"}', `report: ${JSON.stringify(tried)}`);
	check(await frame.locator("p").evaluate((node) => getComputedStyle(node).color) === "rgb(1, 2, 3)", "the report has no styles");
	await page.screenshot({ path: path.join(directory, "page-report.png") });
	await page.keyboard.press("Escape");
	await page.context().close();
}

/** What scripts in a page wait for has no time limit of its own. */
function ended(claim) {
	const late = new Promise((_, refuse) => setTimeout(() => refuse(new Error("no end after three minutes")), 180_000).unref());
	return Promise.race([claim, late]);
}

async function main() {
	const browser = await chromium.launch({
		executablePath,
		args: ["--disable-background-networking", "--disable-component-update", "--disable-quic", "--host-resolver-rules=MAP *.example 127.0.0.1, MAP *.test 127.0.0.1"],
	});
	for (const claim of [looks, keys, announcements, copies, young, missing, rest, login, others, reports]) {
		await ended(claim(browser)).catch((error) => say(`${claim.name}: ${error}`));
	}
	// A page that hangs could keep the browser open.
	await Promise.race([browser.close(), new Promise((late) => setTimeout(late, 10_000).unref())]);
	process.exit(wrong === 0 ? 0 : 1);
}

main().catch((error) => {
	console.log(String(error));
	process.exitCode = 2;
});
