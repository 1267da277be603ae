// Requests to the daemon, and the token that they carry.
//
// The token is kept in the storage of this tab: it survives a reload, no other origin reads it, and each request carries
// it only because this script adds it. A cookie would be worse. The browser sends a cookie to every port of the host, so
// other servers there would get the token, and could set another; and it adds a cookie to requests that this page did
// not make. What outlives the tab would be left to whoever serves the same address later, such as another tunnel to
// localhost: that is a matter for the browser's password manager, which asks.

const NAME = "token";
const PATIENCE_MS = 15000;

let token = takeToken();

/** The daemon wants a token, or another one. */
export class Unauthorized extends Error {}

/** The daemon has no such path: its version is another one, or the feature is off. */
export class Missing extends Error {}

/** The token of the address, which then leaves the address: it should not be in bookmarks. */
function takeToken() {
	const [fragment, query] = [location.hash.slice(1), location.search].map((text) => new URLSearchParams(text).get(NAME));
	const typed = fragment ?? query;
	if (typed !== null) {
		history.replaceState(null, "", location.pathname);
	}
	return typed ?? sessionStorage.getItem(NAME);
}

export const hasToken = () => token !== null;

/** Uses a token for the next requests. It is kept once the daemon has accepted it. */
export function setToken(typed) {
	token = typed;
}

export function forgetToken() {
	token = null;
	sessionStorage.removeItem(NAME);
}

export async function ask(path) {
	const headers = token === null ? {} : { authorization: `Bearer ${token}` };
	const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
	if (!answer.ok) {
		throw await failure(answer);
	}
	if (token !== null) {
		sessionStorage.setItem(NAME, token);
	}
	return answer;
}

export const read = async (path) => (await ask(path)).json();

async function failure(answer) {
	const body = await answer.json().catch(() => ({}));
	const why = body.error ? body.error.message : `${answer.status} ${answer.statusText}`;
	const Kind = { 401: Unauthorized, 404: Missing }[answer.status] ?? Error;
	return new Kind(why);
}
