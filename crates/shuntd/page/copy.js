// Remedies, whose commands one can click to copy.

import { at, button, element, setText } from "./dom.js";

const SHOWN_MS = 4000;

/** A text as nodes: what stands between backquotes is a button that copies it. */
export function withCommands(text) {
	return text.split("`").map((part, nth) => (nth % 2 ? command(part) : document.createTextNode(part)));
}

function command(text) {
	const made = button("", () => copy(text, made), "copy");
	made.append(element("code", text));
	made.setAttribute("aria-label", `Copy: ${text}`);
	made.title = "Copy";
	return made;
}

async function copy(text, pressed) {
	const isCopied = await write(text, pressed);
	setText(at("said"), isCopied ? `Copied: ${text}` : "Cannot copy: select the text instead.");
	pressed.classList.toggle("copied", isCopied);
	setTimeout(() => {
		pressed.classList.remove("copied");
		setText(at("said"), "");
	}, SHOWN_MS);
}

/** Browsers have a clipboard for pages from localhost or by TLS; elsewhere, the selection is copied. */
async function write(text, pressed) {
	if (navigator.clipboard) {
		return navigator.clipboard.writeText(text).then(() => true, () => false);
	}
	const field = document.createElement("textarea");
	field.value = text;
	pressed.after(field);
	field.select();
	const isCopied = document.execCommand("copy");
	field.remove();
	pressed.focus();
	return isCopied;
}
