// Lines over time, drawn as SVG: the only drawing of the page. A plot has a sentence and a table that say the same, and a
// cursor for the pointer and the arrow keys.

import { element, parent, setText } from "./dom.js";
import { clock, timeOfDay } from "./format.js";

const HEIGHT = 180;
// Around the lines: room for the labels.
const [TOP, RIGHT, BOTTOM, LEFT] = [14, 8, 22, 76];
/** Pixels for each point of a line: closer points become their mean. */
const PX_PER_POINT = 2;
const PX_PER_LABEL = 76;
/** Marks that are closer together are one mark. */
const PX_PER_MARK = 5;
const TABLE_ROWS = 24;
const MINUTE_MS = 60000;
const STEPS_MIN = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440];

function svg(tag, attributes, children = []) {
	const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
	Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
	made.append(...children);
	return made;
}

export class Plot {
	/** `unit` makes texts of values. */
	constructor(figure, unit) {
		Object.assign(this, { unit, data: null, cursor: null });
		this.title = figure.querySelector("figcaption").textContent;
		this.drawing = svg("svg", { role: "img", tabindex: 0, class: "plot" });
		this.summary = element("p", "", "summary");
		this.readout = element("p", "", "readout");
		this.details = parent("details", [element("summary", "As a table")]);
		this.keys = element("p", "", "keys");
		this.sentence = element("p", "", "note");
		figure.append(this.keys, this.sentence, this.drawing, this.readout, this.summary, this.details);
		this.details.addEventListener("toggle", () => this.showTable());
		this.drawing.addEventListener("pointermove", (event) => this.pointAt(event.offsetX));
		this.drawing.addEventListener("pointerleave", () => this.moveTo(null));
		this.drawing.addEventListener("blur", () => this.moveTo(null));
		this.drawing.addEventListener("keydown", (event) => this.press(event));
		new ResizeObserver(() => this.draw()).observe(this.drawing);
	}

	/**
	 * Shows a span of time. Lines are `{ name, style, points }`, with points `[ms, value]` at the same times for all
	 * lines; null values are gaps, and so is a time of more than `gap_ms` between two points. `marks` are `{ at, text }`.
	 */
	show({ from, to, gap_ms, lines, marks = [] }) {
		this.data = { from, to, gap_ms, lines, marks };
		this.setSentence("");
		this.keys.replaceChildren(...lines.map(({ name, style }) => parent("span", [element("i", "", style), ` ${name}`])));
		this.draw();
		this.showTable();
	}

	/** Shows a sentence in place of lines that are not known. */
	say(sentence) {
		this.data = null;
		this.setSentence(sentence);
	}

	setSentence(sentence) {
		setText(this.sentence, sentence);
		this.sentence.hidden = !sentence;
		[this.keys, this.drawing, this.readout, this.summary, this.details].forEach((part) => part.toggleAttribute("hidden", Boolean(sentence)));
	}

	draw() {
		const width = this.drawing.clientWidth;
		if (!this.data || width === 0) {
			return;
		}
		const { from, to, lines } = this.data;
		this.x = (ms) => LEFT + (width - LEFT - RIGHT) * (ms - from) / (to - from);
		const columns = Math.max(1, Math.floor((width - LEFT - RIGHT) / PX_PER_POINT));
		this.merged = lines.map(({ points }) => merge(points, from, to, columns));
		const high = niceTop(Math.max(1, ...this.merged.flat().map(([, value]) => value ?? 0)));
		this.y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / high);
		this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
		this.cursorLine = svg("path", { class: "cursor" });
		this.drawing.replaceChildren(
			...[0, high / 2, high].flatMap((value) => this.level(value, width)),
			...timeTicks(from, to, Math.max(1, Math.floor((width - LEFT) / PX_PER_LABEL))).flatMap((ms) => this.timeTick(ms, width)),
			...this.spacedMarks().map(({ at }) => svg("path", { class: "mark", d: `M${this.x(at).toFixed(1)} ${TOP - 8}V${HEIGHT - BOTTOM}` })),
			...this.merged.map((line, nth) => svg("path", { class: lines[nth].style, d: this.path(line) })).reverse(),
			this.cursorLine,
		);
		this.summarize();
		this.moveTo(this.cursor);
	}

	level(value, width) {
		const y = this.y(value);
		return [
			svg("path", { class: "rule", d: `M${LEFT} ${y}H${width - RIGHT}` }),
			svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, [this.unit(value)]),
		];
	}

	timeTick(ms, width) {
		const x = this.x(ms);
		const anchor = x > width - 30 ? "end" : x < LEFT + 20 ? "start" : "middle";
		return [
			svg("path", { class: "rule", d: `M${x.toFixed(1)} ${HEIGHT - BOTTOM}v4` }),
			svg("text", { x: x.toFixed(1), y: HEIGHT - 5, "text-anchor": anchor }, [timeOfDay(ms)]),
		];
	}

	path(line) {
		let last = null;
		return line.map(([ms, value]) => {
			if (value === null) {
				last = null;
				return "";
			}
			const isGap = last === null || ms - last > this.gap();
			last = ms;
			return `${isGap ? "M" : "L"}${this.x(ms).toFixed(1)} ${this.y(value).toFixed(1)}${isGap ? "h0.5" : ""}`;
		}).join("");
	}

	/** Merged points are further apart than those of the data. */
	gap() {
		const { from, to, gap_ms } = this.data;
		return Math.max(gap_ms, 2.5 * (to - from) * PX_PER_POINT / (this.drawing.clientWidth - LEFT - RIGHT));
	}

	spacedMarks() {
		const shown = [];
		for (const mark of this.data.marks) {
			if (shown.length === 0 || this.x(mark.at) - this.x(shown.at(-1).at) >= PX_PER_MARK) {
				shown.push(mark);
			}
		}
		return shown;
	}

	/** The sentence for those who do not see the plot. */
	summarize() {
		const parts = this.data.lines.map(({ name }, nth) => {
			const known = this.merged[nth].filter(([, value]) => value !== null);
			if (known.length === 0) {
				return `${name}: not known`;
			}
			const top = known.reduce((best, point) => (point[1] > best[1] ? point : best));
			return `${name}: last ${this.unit(known.at(-1)[1])}, highest ${this.unit(top[1])} at ${clock(top[0])}`;
		});
		this.drawing.setAttribute("aria-label", `${this.title}. ${parts.join("; ")}.`);
		setText(this.summary, `${parts.join("; ")}.`);
	}

	pointAt(px) {
		const times = this.merged?.[0].map(([ms]) => ms) ?? [];
		const distance = (ms) => Math.abs(this.x(ms) - px);
		this.isSpoken(false);
		this.moveTo(times.length ? times.reduce((best, ms) => (distance(ms) < distance(best) ? ms : best)) : null);
	}

	press(event) {
		const times = this.merged?.[0].map(([ms]) => ms) ?? [];
		const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
		if (step === undefined || times.length === 0) {
			return;
		}
		event.preventDefault();
		const now = this.cursor === null ? times.length : times.findIndex((ms) => ms >= this.cursor);
		this.isSpoken(true);
		this.moveTo(times[Math.min(times.length - 1, Math.max(0, now + step))]);
	}

	/** The pointer moves too fast to read values aloud. */
	isSpoken(whether) {
		this.readout.setAttribute("aria-live", whether ? "polite" : "off");
	}

	moveTo(ms) {
		this.cursor = ms;
		if (!this.cursorLine) {
			return;
		}
		if (ms === null) {
			this.cursorLine.setAttribute("d", "");
			setText(this.readout, "");
			return;
		}
		this.cursorLine.setAttribute("d", `M${this.x(ms).toFixed(1)} ${TOP}V${HEIGHT - BOTTOM}`);
		const values = this.data.lines.map(({ name }, nth) => `${name} ${this.unit(valueNear(this.merged[nth], ms))}`);
		const near = this.data.marks.filter(({ at }) => Math.abs(this.x(at) - this.x(ms)) < PX_PER_MARK);
		const changes = near.slice(0, 3).map(({ text }) => text);
		const more = near.length > 3 ? [`and ${near.length - 3} more`] : [];
		setText(this.readout, [`${clock(ms)}: ${values.join(", ")}`, ...changes, ...more].join("; "));
	}

	showTable() {
		this.details.querySelector("table")?.remove();
		if (!this.details.open || !this.data) {
			return;
		}
		const { from, to, lines, marks } = this.data;
		const rows = lines.map(({ points }) => merge(points, from, to, TABLE_ROWS));
		const times = rows[0].map(([ms]) => ms);
		const step = (times[1] ?? to) - times[0];
		const row = ([ms], nth) => {
			const head = element("th", clock(ms));
			head.scope = "row";
			const count = marks.filter(({ at }) => at >= ms - step / 2 && at < ms + step / 2).length;
			const values = lines.map((_, line) => element("td", this.unit(rows[line][nth]?.[1] ?? NaN), "n"));
			return parent("tr", [head, ...values, element("td", String(count), "n")]);
		};
		const heads = ["time", ...lines.map(({ name }) => name), "changes"].map((title, nth) => {
			const head = element("th", title, nth ? "n" : "");
			head.scope = "col";
			return head;
		});
		const body = parent("tbody", rows[0].map(row));
		this.details.append(parent("table", [element("caption", this.title), parent("thead", [parent("tr", heads)]), body]));
	}
}

/** At most one point for each of the columns of a span of time: the mean of its values, at its middle. */
function merge(line, from, to, columns) {
	const inside = line.filter(([ms]) => ms >= from && ms <= to);
	if (inside.length <= columns) {
		return inside;
	}
	const step = (to - from) / columns;
	const sums = new Map();
	for (const [ms, value] of inside) {
		const nth = Math.min(columns - 1, Math.floor((ms - from) / step));
		const sum = sums.get(nth) ?? { total: 0, count: 0 };
		if (value !== null) {
			sum.total += value;
			sum.count += 1;
		}
		sums.set(nth, sum);
	}
	return [...sums].map(([nth, { total, count }]) => [from + (nth + 0.5) * step, count ? total / count : null]);
}

function valueNear(line, ms) {
	const found = line.find(([at]) => at === ms);
	return found?.[1] ?? NaN;
}

/** The next of 1, 2, 5, 10 ... that is not less. */
function niceTop(value) {
	const power = 10 ** Math.floor(Math.log10(value));
	return power * [1, 2, 5, 10].find((digit) => digit * power >= value);
}

/** Round times of day, at most `most` of them. */
function timeTicks(from, to, most) {
	const step = MINUTE_MS * (STEPS_MIN.find((minutes) => (to - from) / (minutes * MINUTE_MS) <= most) ?? STEPS_MIN.at(-1));
	const zone = new Date(to).getTimezoneOffset() * MINUTE_MS;
	const ticks = [];
	for (let ms = Math.ceil((from - zone) / step) * step + zone; ms <= to; ms += step) {
		ticks.push(ms);
	}
	return ticks;
}
