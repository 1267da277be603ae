// Elements of the page. Texts of the daemon, such as device names, become text, never markup.

export const at = (id) => document.getElementById(id);

export function element(tag, text = "", className = "") {
	const made = document.createElement(tag);
	made.textContent = text;
	if (className) {
		made.className = className;
	}
	return made;
}

/** An element with children. */
export function parent(tag, children, className = "") {
	const made = element(tag, "", className);
	made.append(...children);
	return made;
}

export function button(text, press, className = "") {
	const made = element("button", text, className);
	made.type = "button";
	made.addEventListener("click", press);
	return made;
}

/** Leaves an element alone that has this text: a screen reader reads changes, and a selection stays. */
export function setText(node, text) {
	if (node.textContent !== text) {
		node.textContent = text;
	}
}

/** Shows a sentence instead of the content of a section, or the content if there is nothing to say. */
export function saySentence(sentence, content, text) {
	setText(sentence, text);
	sentence.hidden = !text;
	content.hidden = Boolean(text);
}
