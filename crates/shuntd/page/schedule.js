// When the page asks what. A hidden page asks nothing, and a paused one neither.

import { Unauthorized } from "./api.js";

/** Something to read again and again: `read`, at most every `every_ms`, as long as `wanted`. */
export class Source {
	constructor({ every_ms, read, failed, wanted = () => true }) {
		Object.assign(this, { every_ms, read, failed, wanted, next_ms: 0 });
	}

	isDue(now) {
		return now >= this.next_ms && this.wanted();
	}

	/** Has the source read at the next opportunity. */
	hurry() {
		this.next_ms = 0;
	}
}

export class Schedule {
	constructor(sources, isPaused, refused) {
		Object.assign(this, { sources, isPaused, refused, timer: 0, isRunning: false });
		document.addEventListener("visibilitychange", () => this.wake());
	}

	/** Reads what is due now, and goes on until the page is hidden or paused. */
	wake() {
		clearTimeout(this.timer);
		if (!this.isRunning) {
			this.run();
		}
	}

	isResting() {
		return document.hidden || this.isPaused();
	}

	/** One source after the other, so that a slow answer is not asked for twice. */
	async run() {
		this.isRunning = true;
		for (const source of this.sources) {
			if (this.isResting()) {
				break;
			}
			if (source.isDue(Date.now()) && !await this.tryOne(source)) {
				this.isRunning = false;
				return;
			}
		}
		this.isRunning = false;
		if (!this.isResting()) {
			this.timer = setTimeout(() => this.run(), this.untilNext());
		}
	}

	/** Whether to go on: not if the daemon wants a token. */
	async tryOne(source) {
		source.next_ms = Date.now() + source.every_ms;
		try {
			await source.read();
		} catch (error) {
			if (error instanceof Unauthorized) {
				this.sources.forEach((other) => other.hurry());
				this.refused(error);
				return false;
			}
			source.failed(error);
		}
		return true;
	}

	untilNext() {
		const wanted = this.sources.filter((source) => source.wanted());
		return Math.max(100, Math.min(...wanted.map((source) => source.next_ms)) - Date.now());
	}
}
