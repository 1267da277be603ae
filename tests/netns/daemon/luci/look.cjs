// Checks the page in LuCI in a browser: look.cjs LUCI FILES BROWSER DIRECTORY HOST SERVER COMMAND..., where HOST and
// SERVER have a connection with traffic. Prints one line for each fault, and saves pictures in the directory.
"use strict";
const { chromium } = require("playwright-core");
const path = require("path");
const { Router } = require("./router.cjs");

const [luci, files, executablePath, directory, host, server, ...command] = process.argv.slice(2);
const SCREENS = [
	{ name: "phone", width: 390, height: 844 },
	{ name: "desktop", width: 1280, height: 800 },
];
const VIEW = "admin/status/shunt";
const PATIENCE = Number(process.env.PATIENCE_MS ?? 60_000);
const HOSTILE = "<img src=x onerror=alert(1)>";

let wrong = 0;
function check(holds, text) {
	if (!holds) {
		wrong += 1;
		console.log(text);
	}
}

const router = new Router({ luci, files, command });
let address;

/** Waits until this holds, and says so if it never does. */
async function until(what, holds) {
	const end = Date.now() + PATIENCE;
	while (!(await holds())) {
		if (Date.now() > end) {
			throw new Error(`never: ${what}`);
		}
		await new Promise((resolve) => setTimeout(resolve, 100));
	}
}

async function ask(...words) {
	const { code, stdout, stderr } = await router.run(["--json", ...words]);
	if (code !== 0) {
		throw new Error(`${words}: ${stderr}`);
	}
	return JSON.parse(stdout);
}

/** Runs in the page: what is cut off, has no label, or is no text for people. */
function faults() {
	const found = [];
	const root = document.documentElement;
	const isShown = (one) => one.getClientRects().length > 0;
	if (root.scrollWidth > root.clientWidth) {
		found.push(`${root.scrollWidth} px wide, the window ${root.clientWidth}`);
	}
	for (const one of document.querySelectorAll("#view *")) {
		const box = one.getBoundingClientRect();
		if (isShown(one) && (box.right > root.clientWidth + 0.5 || box.left < -0.5 || one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflow === "hidden")) {
			found.push(`${one.tagName} "${one.textContent.slice(0, 30)}" is cut off: ${Math.round(box.left)} to ${Math.round(box.right)} px`);
		}
	}
	for (const cell of document.querySelectorAll("#view td")) {
		const box = cell.getBoundingClientRect();
		const heads = cell.closest("table").querySelector("tr");
		if (isShown(cell) && cell.textContent && box.height > 6 * box.width) {
			found.push(`"${cell.textContent.slice(0, 30)}" has no room: ${Math.round(box.width)} px`);
		}
		// A theme for phones has no row of titles.
		const hasTitle = cell.dataset.title && getComputedStyle(cell, "::before").content !== "none";
		if (isShown(cell) && cell.textContent && !isShown(heads) && !cell.querySelector("button") && !hasTitle) {
			found.push(`"${cell.textContent.slice(0, 30)}" has no title`);
		}
	}
	const text = document.querySelector("#view").innerText;
	for (const odd of text.match(/.*\b(undefined|NaN|null|\[object).*/g) ?? []) {
		found.push(`shown: ${odd}`);
	}
	for (const control of document.querySelectorAll("#view button, #view input")) {
		if (!(control.getAttribute("aria-label") || control.labels?.length || control.textContent.trim())) {
			found.push(`${control.tagName} has no name`);
		}
	}
	// Of each text on the page, against what is behind it (WCAG AA).
	const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
	const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
		.reduce((sum, c, nth) => sum + c * [0.2126, 0.7152, 0.0722][nth], 0);
	for (const cell of document.querySelectorAll("#view td, #view p, #view h3")) {
		let behind = cell;
		while (behind.parentElement && channels(getComputedStyle(behind).backgroundColor)[3] === 0) {
			behind = behind.parentElement;
		}
		const [light, dark] = [getComputedStyle(cell).color, getComputedStyle(behind).backgroundColor].map((c) => luminance(channels(c)) + 0.05).sort((a, b) => b - a);
		if (isShown(cell) && cell.textContent && light / dark < 4.5) {
			found.push(`"${cell.textContent.slice(0, 30)}" is hard to read: ${(light / dark).toFixed(1)}`);
		}
	}
	return found;
}

async function open(browser, options = {}) {
	const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
	const page = await context.newPage();
	page.setDefaultTimeout(PATIENCE);
	page.on("pageerror", (error) => check(false, `error in the page: ${error}`));
	page.on("console", (message) => check(!["error", "warning"].includes(message.type()), `console: ${message.text()} ${message.location().url}`));
	page.on("dialog", (dialog) => { check(false, `a text opened a dialog: ${dialog.message()}`); return dialog.dismiss(); });
	page.on("request", (request) => check(/^data:/.test(request.url()) || request.url().startsWith(new URL(address).origin), `asks for ${request.url()}`));
	await page.goto(address);
	await page.locator("#view h2").waitFor();
	return page;
}

const view = (page) => page.locator("#view");
const row = (page, text) => view(page).locator("tr", { hasText: text });
/** Waits for two answers to the page's polls: the second one was asked for after this call. */
async function polled(page) {
	for (let nth = 0; nth < 2; nth += 1) {
		await page.waitForResponse((response) => response.url().includes("/ubus/"));
	}
}

async function looks(browser) {
	for (const { name, width, height } of SCREENS) {
		for (const colorScheme of ["light", "dark"]) {
			const page = await open(browser, { viewport: { width, height }, screen: { width, height }, colorScheme });
			await row(page, host).first().waitFor();
			await page.locator("#view input").fill(host);
			await page.getByRole("button", { name: "Explain" }).click();
			await view(page).getByText("→").first().waitFor();
			(await page.evaluate(faults)).forEach((fault) => check(false, `${name}, ${colorScheme}: ${fault}`));
			await page.evaluate(() => window.scrollTo(0, 0));
			await page.screenshot({ path: path.join(directory, `luci-${name}-${colorScheme}.png`), fullPage: true });
			await page.context().close();
		}
	}
	for (const theme of ["bootstrap-dark", "bootstrap-light"]) {
		router.theme = theme;
		const page = await open(browser, { colorScheme: theme === "bootstrap-dark" ? "light" : "dark" });
		await row(page, host).first().waitFor();
		(await page.evaluate(faults)).forEach((fault) => check(false, `${theme}: ${fault}`));
		await page.context().close();
	}
	router.theme = "bootstrap";
}

/** What is shown is what the command says. Traffic flows meanwhile, so numbers that grow are between two answers. */
async function values(browser) {
	const before = await ask("status");
	const page = await open(browser);
	const text = await view(page).innerText();
	const after = await ask("status");
	for (const expected of [`Shunt ${before.version}`, `instance ${before.instance}`, `of ${before.flows.max}.`]) {
		check(text.includes(expected), `"${expected}" is not shown: ${text.slice(0, 200)}`);
	}
	for (const [nth, port] of before.ports.entries()) {
		const cells = await view(page).locator("table").first().locator("tr").nth(nth + 1).locator("td").allInnerTexts();
		// The reason of an engine that the daemon chooses has numbers, and the choice may change meanwhile.
		const words = ({ engine, engine_reason }) => `${engine}: ${engine_reason}`.replace(/\d+/g, "N");
		const shown = words({ engine: cells[1], engine_reason: cells[2] });
		check(cells[0] === port.name && [port, after.ports[nth]].map(words).includes(shown), `port ${port.name}: ${cells}`);
		const slow = Number(cells[4]);
		check(slow >= port.packets.slow && slow <= after.ports[nth].packets.slow, `port ${port.name}: slow packets ${cells[4]}, ${port.packets.slow} to ${after.ports[nth].packets.slow}`);
		if (port.bytes.fast_share != null) {
			check(Math.abs(parseFloat(cells[3]) / 100 - after.ports[nth].bytes.fast_share) < 0.1, `port ${port.name}: ${cells[3]} fast`);
		}
	}
	const share = Number(/(\d+\.\d) % of the bytes/.exec(text)?.[1]) / 100;
	check(share >= Math.min(before.bytes.fast_share, after.bytes.fast_share) - 0.001 && share <= Math.max(before.bytes.fast_share, after.bytes.fast_share) + 0.001, `fast share ${share}`);
	for (const { meaning, remedy } of before.top_reasons) {
		check(text.includes(meaning) && text.includes(remedy), `a reason is not shown: ${meaning}`);
	}
	for (const [one, cell] of [[host, 1], [server, 2]]) {
		const cells = await row(page, one).first().locator("td").allInnerTexts();
		check(/^\d+(\.\d)? [KMG]?bit\/s$/.test(cells[cell]) && cells[3] === "1", `host ${one}: ${cells}`);
	}
	await page.context().close();
}

/** "Turn off" has no packet of the host on the fast path, "Turn on" has them again. By keys alone. */
async function switches(browser) {
	const page = await open(browser);
	const button = (name) => row(page, host).getByRole("button", { name }).first();
	const focused = () => page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent);
	const press = async (name) => {
		await button(name).waitFor();
		const label = await button(name).getAttribute("aria-label") ?? await button(name).textContent();
		for (let nth = 0; nth < 100 && (await focused()) !== label; nth += 1) {
			await page.keyboard.press("Tab");
		}
		check((await focused()) === label, `"${label}" is not reached by Tab`);
		// The page is drawn again meanwhile, and the focus stays.
		await polled(page);
		await until(`"${label}" has the focus again`, async () => (await focused()) === label);
		await page.keyboard.press("Enter");
	};
	const counts = async () => (await ask("status")).packets;
	const rises = async (which) => {
		const first = (await counts())[which];
		await until(`${which} packets rise`, async () => (await counts())[which] > first + 20);
	};
	await rises("fast");
	await press("Turn off");
	await button("Turn on").waitFor();
	check((await focused()) === `Turn on ${host}`, `the focus is on: ${await focused()}`);
	const rules = await ask("off");
	check(JSON.stringify(rules).includes(host), `no rule for the host: ${JSON.stringify(rules)}`);
	const { fast } = await counts();
	await rises("slow");
	check((await counts()).fast === fast, `packets of a host that is off are fast: ${fast}, ${(await counts()).fast}`);
	check(new RegExp(`Turned off[^]*${host}`).test(await view(page).innerText()), "the page does not list the host as turned off");
	await page.screenshot({ path: path.join(directory, "luci-off.png"), fullPage: true });

	await page.locator("#view input").fill(host);
	await page.keyboard.press("Enter");
	await view(page).getByText("shunt on").first().waitFor();

	await press("Turn on");
	await button("Turn off").waitFor();
	check(!JSON.stringify(await ask("off")).includes(host), "the rule is still there");
	await rises("fast");

	// A rule that somebody has made by hand, for a host without connections, is shown and removed, too.
	await ask("off", "203.0.113.99", "--for", "1h");
	await row(page, "203.0.113.99").getByRole("button", { name: "Turn on" }).click();
	await row(page, "203.0.113.99").first().waitFor({ state: "detached" });
	check(!JSON.stringify(await ask("off")).includes("203.0.113.99"), "the rule by hand is still there");
	await page.context().close();
}

async function answers(browser) {
	const page = await open(browser);
	const why = async (text) => {
		await page.locator("#view input").fill(text);
		await page.keyboard.press("Enter");
	};
	await why(host);
	await view(page).locator("tr", { hasText: "→" }).filter({ hasText: server }).first().waitFor();
	await why("not an address; reboot");
	await view(page).getByText("Type an IP address").waitFor();
	await why("203.0.113.98");
	await view(page).getByText(/no such connection/).waitFor();
	await page.context().close();
}

/** Who may only look sees the page, and can turn nothing off. */
async function looks_only(browser) {
	router.isReadOnly = true;
	const page = await open(browser);
	await row(page, host).first().waitFor();
	check(await view(page).getByRole("button", { name: /Turn o/ }).count() === 0, "who may only look can turn a host off");
	await page.context().close();
	router.isReadOnly = false;
}

/** No text becomes markup, whoever wrote it. */
async function hostile(browser) {
	const falsify = (value) => typeof value === "string" ? HOSTILE : Array.isArray(value) ? value.map(falsify) :
		value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, falsify(one)])) : value;
	router.falsify = ({ code, stdout, stderr }, words) => {
		const answer = JSON.parse(stdout || stderr);
		if (words.includes("off")) {
			return { code: 1, stdout: "", stderr: JSON.stringify({ error: { code: "x", message: HOSTILE } }) };
		}
		const text = JSON.stringify(falsify(words.includes("flows") ? answer.map((one) => ({ name: "", ...one })) : answer));
		return { code, stdout: stdout && text, stderr: stderr && text };
	};
	const page = await open(browser);
	await page.locator("#view input").fill(host);
	await page.keyboard.press("Enter");
	await view(page).getByText("→").first().waitFor();
	check(await page.locator("#view img").count() === 0, "a text became markup");
	check((await view(page).innerText()).includes(HOSTILE), "texts are not shown as they are");
	await view(page).getByRole("button", { name: "Turn o" }).first().click();
	await page.locator("#maincontent > .alert-message").getByText(HOSTILE).waitFor();
	router.falsify = ({ code }) => ({ code: code || 1, stdout: "", stderr: HOSTILE });
	await view(page).getByText(HOSTILE).first().waitFor();
	await until("the page shows the error", async () => (await view(page).locator("h3").count()) < 4);
	check(await page.locator("img[src=x]").count() === 0, "an error became markup");
	router.falsify = (answer) => answer;
	await page.context().close();
}

/** Without a daemon, the page says so, and goes on when one runs again. */
async function ended(browser) {
	const page = await open(browser);
	await row(page, host).first().waitFor();
	await router.run(["down"]);
	await view(page).getByText(/shunt up|not running|no daemon/i).first().waitFor();
	(await page.evaluate(faults)).forEach((fault) => check(false, `without a daemon: ${fault}`));
	await page.screenshot({ path: path.join(directory, "luci-down.png"), fullPage: true });
	const up = await router.run(["up"]);
	check(up.code === 0, `up: ${up.stderr}`);
	await view(page).getByText("Ports").first().waitFor();
	await page.context().close();
}

async function look() {
	address = await router.listen(VIEW);
	const browser = await chromium.launch({
		executablePath,
		args: ["--disable-background-networking", "--disable-component-update", "--disable-quic"],
	});
	for (const part of [looks, values, switches, answers, looks_only, hostile, ended]) {
		await part(browser).catch((error) => check(false, `${part.name}: ${error.stack ?? error}`));
	}
	router.faults.forEach((fault) => check(false, `router: ${fault}`));
	await browser.close();
	router.close();
	process.exitCode = wrong === 0 ? 0 : 1;
}

look().catch((error) => {
	console.log(String(error.stack ?? error));
	process.exitCode = 2;
});
