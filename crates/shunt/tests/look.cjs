// Checks a page in a browser: look.cjs PAGE BROWSER DIRECTORY. Prints one line for each fault, and saves pictures in the directory.
"use strict";
const { chromium } = require("playwright-core");
const path = require("path");
const { pathToFileURL } = require("url");

const [page_file, executablePath, directory] = process.argv.slice(2);
// A phone is narrow; a desktop is wide enough for plots side by side.
const SCREENS = [
	{ name: "phone", width: 360, height: 740, colorScheme: "light" },
	{ name: "phone-dark", width: 360, height: 740, colorScheme: "dark" },
	{ name: "desktop", width: 1280, height: 900, colorScheme: "light" },
	{ name: "desktop-dark", width: 1280, height: 900, colorScheme: "dark" },
];

/** Runs in the page. */
function faults() {
	const found = [];
	const root = document.documentElement;
	if (root.scrollWidth > root.clientWidth) {
		const beyond = [...document.body.querySelectorAll("*")]
			.filter((one) => one.getBoundingClientRect().right > root.clientWidth + 0.5)
			.map((one) => one.tagName + "." + one.className);
		found.push(`${root.scrollWidth} px wide, the window ${root.clientWidth}: ${beyond.slice(0, 8)}`);
	}
	const plots = [...document.querySelectorAll("svg")];
	if (plots.length === 0) {
		found.push("no plot");
	}
	for (const [nth, plot] of plots.entries()) {
		const of = `plot ${nth}`;
		const area = plot.getBoundingClientRect();
		if (area.width < 200 || area.height < 60) {
			found.push(`${of}: ${area.width} x ${area.height} px`);
		}
		const texts = [...plot.querySelectorAll("text")].filter((text) => text.textContent.trim() !== "");
		if (texts.length < 4) {
			found.push(`${of}: ${texts.length} labels`);
		}
		const boxes = texts.map((text) => [text.textContent.trim(), text.getBoundingClientRect()]);
		for (const [at, [name, box]] of boxes.entries()) {
			const inside = box.left >= area.left - 0.5 && box.right <= area.right + 0.5 &&
				box.top >= area.top - 0.5 && box.bottom <= area.bottom + 0.5;
			if (!inside) {
				found.push(`${of}: "${name}" is cut off`);
			}
			if (parseFloat(getComputedStyle(texts[at]).fontSize) * (area.width / 360) < 9) {
				found.push(`${of}: "${name}" is too small to read`);
			}
			for (const [other_name, other] of boxes.slice(at + 1)) {
				if (box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom) {
					found.push(`${of}: "${name}" and "${other_name}" overlap`);
				}
			}
		}
	}
	return found;
}

async function look() {
	const browser = await chromium.launch({
		executablePath,
		args: ["--disable-background-networking", "--disable-component-update", "--disable-quic"],
	});
	const url = pathToFileURL(path.resolve(page_file)).href;
	let wrong = 0;
	const say = (text) => {
		wrong += 1;
		console.log(text);
	};
	for (const { name, width, height, colorScheme } of SCREENS) {
		const context = await browser.newContext({ viewport: { width, height }, colorScheme, acceptDownloads: true });
		const page = await context.newPage();
		page.on("console", (message) => say(`${name}: console: ${message.text()}`));
		page.on("pageerror", (error) => say(`${name}: ${error}`));
		page.on("request", (request) => {
			if (request.url() !== url && !/^(data|blob):/.test(request.url())) {
				say(`${name}: asks for ${request.url()}`);
			}
		});
		await page.goto(url);
		(await page.evaluate(faults)).forEach((fault) => say(`${name}: ${fault}`));
		await page.screenshot({ path: path.join(directory, `${name}.png`), fullPage: true });
		if (name === "phone") {
			const waiting = page.waitForEvent("download", { timeout: 10_000 });
			await page.click("#download");
			await (await waiting).saveAs(path.join(directory, "download.json"));
		}
		if (name === "desktop-dark") {
			// Printing from dark mode must still use a white background.
			await page.pdf({ path: path.join(directory, "print.pdf"), format: "A4", printBackground: true });
			await page.emulateMedia({ media: "print" });
			const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
			if (paper !== "rgb(255, 255, 255)") {
				say(`print: on ${paper}`);
			}
			(await page.evaluate(faults)).forEach((fault) => say(`print: ${fault}`));
		}
		await context.close();
	}
	// Without scripts, everything works except the download link.
	const context = await browser.newContext({ javaScriptEnabled: false, viewport: { width: 360, height: 740 } });
	const page = await context.newPage();
	await page.goto(url);
	if (!(await page.locator("svg").first().isVisible()) || (await page.locator("#download").isVisible())) {
		say("without scripts: no plot, or a link that does nothing");
	}
	await browser.close();
	process.exitCode = wrong === 0 ? 0 : 1;
}

look().catch((error) => {
	console.log(String(error));
	process.exitCode = 2;
});
