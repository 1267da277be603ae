// The last readings of the status, and what was counted between them.

// Five minutes, at one reading every two seconds.
const MOST = 151;
const readings = [];

export function add(status) {
	readings.push({ at: Date.now(), status });
	if (readings.length > MOST) {
		readings.shift();
	}
}

export const newest = () => readings.at(-1)?.status;

/** The last two readings, if the same daemon gave both. */
export function lastTwo() {
	const [before, now] = readings.slice(-2);
	return now && before.status.pid === now.status.pid ? [before, now] : null;
}

/** What `counted` gives per second between the last two readings; NaN if that is not known. */
export function perSecond(counted) {
	const two = lastTwo();
	return two ? change(two[0], two[1], counted) : NaN;
}

function change(before, now, counted) {
	const difference = counted(now.status) - counted(before.status);
	return Math.max(0, difference) * 1000 / (now.at - before.at);
}

/** Rates between all readings, as points of time: `[ms, rate]`, where a gap is a null. */
export function course(counted) {
	return readings.slice(1).map((now, nth) => {
		const before = readings[nth];
		const value = before.status.pid === now.status.pid ? change(before, now, counted) : NaN;
		return [now.at, Number.isFinite(value) ? value : null];
	});
}

/** The share of the packets between the last two readings that was fast. */
export function recentShare() {
	const [fast, slow, dropped] = ["fast", "slow", "dropped"].map((which) => perSecond((s) => s.packets[which]));
	return fast / (fast + slow + dropped);
}
