// The web server of a router with LuCI, as far as one view needs it: uhttpd, LuCI's dispatcher, and rpcd with its
// objects session, luci and file. LuCI's templates, scripts and styles come from its sources, and the view, its entry
// in the menu and its rights from packaging/openwrt. `file.exec` runs the true program.
"use strict";
const { execFile } = require("child_process");
const fs = require("fs");
const http = require("http");
const path = require("path");
const vm = require("vm");

const SESSION = "0123456789abcdef0123456789abcdef";
const PAGE = "/cgi-bin/luci";
const RPCD_OUTPUT_MAX = 4096 * 64;
const RPCD_COMMAND_MAX = 1024;
const STATUS = { ok: 0, notFound: 4, denied: 6, unsupported: 8 };
const TYPES = { ".css": "text/css", ".js": "application/javascript", ".json": "application/json", ".png": "image/png", ".svg": "image/svg+xml", ".gif": "image/gif" };

const json = (file) => JSON.parse(fs.readFileSync(file, "utf8"));

/** A template of LuCI as a function of its variables. ucode is near enough to JavaScript for LuCI's templates. */
function compile(text) {
	const words = (code) => code
		.replace(/^\s*import .*$/gm, "")
		.replace(/^\s*(if|for|while) (\([^]*\)):\s*$/, "$1 $2 {")
		.replace(/^\s*elif (\([^]*\)):\s*$/, "} else if $1 {")
		.replace(/^\s*else\s*$/, "} else {")
		.replace(/^\s*(endif|endfor|endwhile)\s*$/, "}");
	const parts = text.split(/(\{#[^]*?#\}|\{%[^]*?%\}|\{\{[^]*?\}\})/);
	const code = parts.map((part) => {
		const inner = part.slice(2, -2).replace(/^[-+]|-$/g, "");
		switch (part.slice(0, 2)) {
			case "{#": return "";
			case "{%": return words(inner);
			case "{{": return `write(${inner});`;
			default: return `write(${JSON.stringify(part)});`;
		}
	});
	// An object in a string is JSON in ucode, and an unknown name is null.
	return vm.runInNewContext(`
		Object.prototype.toString = function () { return JSON.stringify(this); };
		(scope) => {
			const names = new Proxy(scope, { has: () => true, get: (all, name) => name === Symbol.unscopables ? undefined : all[name] ?? globalThis[name] });
			with (names) { ${code.join("\n")} }
		}`);
}

/** fnmatch(3) without flags but FNM_NOESCAPE, for patterns without brackets. */
function matches(pattern, text) {
	const expression = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, "[^]*").replace(/\?/g, "[^]");
	return new RegExp(`^${expression}$`).test(text);
}

/** A router: `luci` has LuCI's sources, `files` those of the package, `command` the words that stand for /usr/sbin/shunt. */
class Router {
	constructor({ luci, files, command }) {
		this.luci = luci;
		this.files = files;
		this.command = command;
		/** Whether the user who is logged in may change nothing. */
		this.isReadOnly = false;
		/** The colours of LuCI's theme: bootstrap (as the browser), bootstrap-dark or bootstrap-light. */
		this.theme = "bootstrap";
		/** Changes the answer of the program, for texts that the true one would not give. */
		this.falsify = (answer) => answer;
		/** What was asked that a router would refuse, one line each. */
		this.faults = [];
		const base = path.join(luci, "modules/luci-base");
		this.roots = [path.join(files, "www"), path.join(base, "htdocs"), path.join(luci, "themes/luci-theme-bootstrap/htdocs")];
		this.templates = [path.join(base, "ucode/template"), path.join(luci, "themes/luci-theme-bootstrap/ucode/template")];
		this.menu = { ...json(path.join(base, "root/usr/share/luci/menu.d/luci-base.json")), ...json(path.join(files, "usr/share/luci/menu.d/luci-app-shunt.json")) };
		this.rights = { ...json(path.join(base, "root/usr/share/rpcd/acl.d/luci-base.json")), ...json(path.join(files, "usr/share/rpcd/acl.d/luci-app-shunt.json")) };
	}

	/** Listens on a port of its own, and returns the address of the view. */
	async listen(view) {
		this.server = http.createServer((request, response) => {
			this.answer(request, response).catch((error) => {
				this.faults.push(`${request.url}: ${error.stack}`);
				response.destroy();
			});
		});
		await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
		return `http://127.0.0.1:${this.server.address().port}${PAGE}/${view}`;
	}

	close() {
		this.server.closeAllConnections();
		this.server.close();
	}

	async answer(request, response) {
		const body = [];
		for await (const part of request) {
			body.push(part);
		}
		const { pathname } = new URL(request.url, "http://router");
		const send = (type, text) => response.writeHead(200, { "content-type": type, "cache-control": "no-cache" }).end(text);
		if (pathname.startsWith("/ubus/")) {
			const asked = JSON.parse(Buffer.concat(body));
			const answered = Array.isArray(asked) ? await Promise.all(asked.map((one) => this.call(one))) : await this.call(asked);
			return send("application/json", JSON.stringify(answered));
		}
		if (pathname.startsWith("/luci-static/")) {
			// The dark and the light theme are links to the one of both.
			const name = pathname.replace(/^\/luci-static\/bootstrap-(dark|light)\//, "/luci-static/bootstrap/");
			const file = this.roots.map((root) => path.join(root, path.normalize(name))).find((one) => fs.existsSync(one));
			if (file) {
				return send(TYPES[path.extname(file)] ?? "application/octet-stream", fs.readFileSync(file));
			}
		}
		if (pathname === `${PAGE}/admin/menu`) {
			return send("application/json", JSON.stringify(this.tree()));
		}
		if (pathname.startsWith(`${PAGE}/admin/translations/`)) {
			return send("application/javascript", "window.TR={};");
		}
		const node = pathname.startsWith(`${PAGE}/`) && this.menu[pathname.slice(PAGE.length + 1)];
		if (node?.action.type === "view") {
			return send("text/html; charset=UTF-8", this.document(pathname.slice(PAGE.length), node));
		}
		if (!pathname.startsWith("/luci-static/resources/preload")) {
			this.faults.push(`there is no ${pathname}`);
		}
		return response.writeHead(404).end();
	}

	/** The menu as LuCI's dispatcher makes it for the user. */
	tree() {
		const root = { satisfied: true, children: {} };
		for (const [name, spec] of Object.entries(this.menu)) {
			let node = root;
			for (const part of name.split("/")) {
				node.children ??= {};
				node = node.children[part] ??= { satisfied: true };
			}
			Object.assign(node, spec, { readonly: this.isReadOnly && Boolean(spec.depends?.acl) });
		}
		return root;
	}

	document(pathInfo, node) {
		const parts = pathInfo.split("/").filter(Boolean);
		const variables = { SCRIPT_NAME: PAGE, PATH_INFO: pathInfo, DOCUMENT_ROOT: "/www" };
		const dispatched = { ...node, satisfied: true, readonly: this.isReadOnly };
		let text = "";
		const scope = {
			write: (value) => { text += value ?? ""; },
			include: (name) => this.template(name)(scope),
			view: node.action.path, node: dispatched, dispatched,
			theme: this.theme, media: `/luci-static/${this.theme}`, resource: "/luci-static/resources",
			ctx: { request_path: parts, path: parts, authsession: SESSION, authtoken: SESSION },
			config: { main: {}, apply: {} },
			version: { luciname: "LuCI", luciversion: "test", distname: "OpenWrt", distversion: "", distrevision: "" },
			http: { getenv: (name) => variables[name], prepare_content: () => {} },
			dispatcher: { lang: "en", build_url: (...words) => [PAGE, ...words].join("/"), rollback_pending: () => null, lookup: () => null },
			ubus: { call: () => ({ hostname: "router" }) },
			getuid: () => 0, getspnam: () => ({ pwdp: "set" }),
			_: (text) => text, replace: (text, what, by) => text.replaceAll(what, by), max: Math.max,
			join: (by, list) => list.join(by), striptags: (text) => text.replace(/<[^>]*>/g, ""),
			entityencode: (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`),
			trim: (text) => text.trim(), sprintf: (_, value) => JSON.stringify(value),
		};
		scope.include("view");
		return text;
	}

	template(name) {
		const file = this.templates.map((root) => path.join(root, `${name}.ut`)).find((one) => fs.existsSync(one));
		return compile(fs.readFileSync(file, "utf8"));
	}

	/** Whether the session has this right, by the rights of the package. */
	may(scope, object, right) {
		const levels = this.isReadOnly ? ["read"] : ["read", "write"];
		const granted = (of) => Array.isArray(of) ? of.some((one) => matches(one, object)) :
			Object.entries(of ?? {}).some(([pattern, list]) => matches(pattern, object) && list.some((one) => matches(one, right)));
		return Object.values(this.rights).some((group) => levels.some((level) => granted(group[level]?.[scope])));
	}

	async call({ id, method, params }) {
		const reply = (body) => ({ jsonrpc: "2.0", id, ...body });
		if (method !== "call") {
			return reply({ result: {} });
		}
		const [session, object, name, given] = params;
		if (session !== SESSION || (object !== "session" && !this.may("ubus", object, name))) {
			this.faults.push(`no right to call ${object}.${name}`);
			return reply({ error: { code: -32002, message: "Access denied" } });
		}
		switch (`${object}.${name}`) {
			case "session.access": return reply({ result: [STATUS.ok, { access: this.may(given.scope, given.object, given.function) }] });
			case "luci.getFeatures": return reply({ result: [STATUS.ok, {}] });
			case "uci.get": return reply({ result: [STATUS.ok, { values: {} }] });
			case "file.list": return reply({ result: [STATUS.notFound] });
			case "file.exec": return reply({ result: await this.exec(given) });
			default: return reply({ result: [STATUS.notFound] });
		}
	}

	/** As rpcd does: the whole command line needs a right, and more output than it has room for is an error. */
	async exec({ command, params = [] }) {
		const line = [command, ...params].join(" ");
		if (line.length >= RPCD_COMMAND_MAX || !(this.may("file", command, "exec") || this.may("file", line, "exec"))) {
			this.faults.push(`no right to run ${line}`);
			return [STATUS.denied];
		}
		if (command !== "/usr/sbin/shunt") {
			return [STATUS.notFound];
		}
		const answer = await this.run(params);
		if (answer.stdout.length >= RPCD_OUTPUT_MAX || answer.stderr.length >= RPCD_OUTPUT_MAX) {
			return [STATUS.unsupported];
		}
		return [STATUS.ok, this.falsify(answer, params)];
	}

	/** Runs the program, past LuCI. */
	run(words) {
		const [program, ...first] = this.command;
		return new Promise((resolve) => {
			execFile(program, [...words, ...first], { maxBuffer: 1 << 26 }, (error, stdout, stderr) => {
				resolve({ code: error ? error.code ?? 255 : 0, stdout, stderr });
			});
		});
	}
}

module.exports = { Router };
