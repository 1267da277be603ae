// Tables that are kept up to date row by row, so that the focus and a selection stay where they are. On a narrow screen
// each row becomes a card; the roles are explicit because that takes them from elements.
//
// A column has a `title` and the `text` of an item; with `value`, it holds numbers. `press` makes the text a button,
// `parts` gives nodes in place of the text; `isMinor` columns are left out on narrow screens, and the texts of `isLong`
// ones have lines of their own there. The first column names the row.

import { at, button, element, parent, setText } from "./dom.js";

export class Table {
	/** `key` of an item is the identity of its row. With `order`, people may sort: `{ column, down }`; then `sorted` is called. */
	constructor(id, caption, columns, { key, order = null, sorted = () => {} }) {
		Object.assign(this, { columns, key, order, sorted, items: [], rows: new Map() });
		const table = at(id);
		table.setAttribute("role", "table");
		table.classList.add("cards");
		this.head = withRole(element("tr"), "row");
		this.body = withRole(element("tbody"), "rowgroup");
		const heads = withRole(parent("thead", [this.head]), "rowgroup");
		table.replaceChildren(element("caption", caption), heads, this.body);
		this.head.append(...columns.map((column) => this.headCell(column)));
		if (order) {
			table.before(this.sorter());
			this.showOrder();
		}
	}

	/** Shows these items, at most `most` of them. */
	show(items, most = Infinity) {
		this.items = items;
		this.most = most;
		const sorted = this.order ? [...items].sort(comparison(this.order)) : items;
		const shown = sorted.slice(0, most).map((item) => this.row(item));
		const keys = new Set(sorted.slice(0, most).map(this.key));
		[...this.rows.keys()].filter((key) => !keys.has(key)).forEach((key) => this.rows.delete(key));
		arrange(this.body, shown);
	}

	row(item) {
		const key = this.key(item);
		if (!this.rows.has(key)) {
			this.rows.set(key, new Row(this.columns));
		}
		return this.rows.get(key).show(item);
	}

	headCell(column) {
		const head = withRole(element("th", this.order ? "" : column.title, className(column)), "columnheader");
		head.scope = "col";
		if (this.order) {
			head.append(button(column.title, () => this.sortBy(column)));
		}
		return head;
	}

	/** On narrow screens there are no heads to press. */
	sorter() {
		this.choice = element("select");
		this.choice.append(...this.columns.map((column, nth) => new Option(column.title, nth)));
		this.choice.addEventListener("change", () => this.sortBy(this.columns[this.choice.value]));
		return parent("label", ["Sort by ", this.choice], "sorter");
	}

	sortBy(column) {
		const isAgain = this.order.column === column;
		this.order = { column, down: isAgain ? !this.order.down : Boolean(column.value) };
		this.showOrder();
		this.show(this.items, this.most);
		this.sorted();
	}

	showOrder() {
		const { column, down } = this.order;
		[...this.head.cells].forEach((head, nth) => {
			const isChosen = this.columns[nth] === column;
			head.toggleAttribute("aria-sort", isChosen);
			if (isChosen) {
				head.setAttribute("aria-sort", down ? "descending" : "ascending");
			}
		});
		this.choice.value = this.columns.indexOf(column);
	}
}

class Row {
	constructor(columns) {
		this.columns = columns;
		this.texts = [];
		this.cells = columns.map((column, nth) => this.cell(column, nth === 0));
		this.line = withRole(parent("tr", this.cells), "row");
	}

	cell(column, isName) {
		const made = withRole(element(isName ? "th" : "td", "", className(column)), isName ? "rowheader" : "cell");
		if (isName) {
			made.scope = "row";
		}
		made.dataset.title = column.title;
		this.filled = [...(this.filled ?? []), column.press ? button("", () => column.press(this.item)) : element("span")];
		made.append(this.filled.at(-1));
		return made;
	}

	show(item) {
		this.item = item;
		this.columns.forEach((column, nth) => {
			const text = column.text(item);
			if (text === this.texts[nth]) {
				return;
			}
			this.texts[nth] = text;
			if (column.parts) {
				this.filled[nth].replaceChildren(...column.parts(item));
			} else {
				setText(this.filled[nth], text);
			}
		});
		return this.line;
	}
}

function className(column) {
	return [column.value ? "n" : "", column.isMinor ? "minor" : "", column.isLong ? "long" : ""].filter(Boolean).join(" ");
}

function withRole(node, role) {
	node.setAttribute("role", role);
	return node;
}

/** Compares items by a column; unknown values are last. */
function comparison({ column: { text, value }, down }) {
	const sign = down ? -1 : 1;
	if (!value) {
		return (a, b) => sign * text(a).localeCompare(text(b), "en", { numeric: true });
	}
	const known = (item) => (Number.isFinite(value(item)) ? value(item) : -1);
	return (a, b) => sign * (known(a) - known(b));
}

/** Makes these the children of a node, and moves only those that are elsewhere. */
function arrange(node, children) {
	const kept = new Set(children);
	[...node.children].filter((child) => !kept.has(child)).forEach((child) => child.remove());
	children.forEach((child, nth) => {
		if (node.children[nth] !== child) {
			node.insertBefore(child, node.children[nth] ?? null);
		}
	});
}
