// The form for the token, in place of the page, until the daemon accepts one.

import { forgetToken, hasToken, setToken } from "./api.js";
import { at, setText } from "./dom.js";

/** Calls `again` when a token was typed. */
export function start(again) {
	at("login-form").addEventListener("submit", (event) => {
		event.preventDefault();
		setToken(at("token").value.trim());
		at("login").hidden = true;
		again();
	});
	// The page starts again without anything that it has read.
	at("sign-out").addEventListener("click", () => {
		forgetToken();
		location.reload();
	});
}

export const isShown = () => !at("login").hidden;

/** Asks for a token, since the daemon refuses requests without one or with this one. */
export function show() {
	at("login").hidden = false;
	at("page").hidden = true;
	at("sign-out").hidden = true;
	setText(at("login-error"), hasToken() ? "The token is wrong." : "");
	setText(at("verdict"), "This router asks for a token.");
	at("token").select();
}

/** Shows the page: the daemon has answered. */
export function hide() {
	const wasAsked = at("page").hidden;
	at("page").hidden = false;
	at("sign-out").hidden = !hasToken();
	if (wasAsked) {
		at("now-title").focus();
	}
}
