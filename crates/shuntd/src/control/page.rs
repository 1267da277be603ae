//! The web page: a few files without anything from elsewhere. Its scripts read the same paths as other clients.

use axum::{
    body::Body,
    extract::Path,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY},
    },
    response::{IntoResponse, Response},
};
use shunt_http::{Refusal, bad};

/// The path of the document.
pub(super) const DOCUMENT: &str = "/";
/// The path of the files that the document and its scripts load, as a route.
pub(super) const FILES: &str = "/page/{name}";

macro_rules! files {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("../../page/", $name)))),*] };
}

/// The files of the page. They are the same on every machine, so they are no secret.
const PAGE: [(&str, &str); 24] = files!(
    "index.html" "report.html" "page.css"
    "api.js" "attention.js" "changes.js" "copy.js" "dom.js" "flows.js" "format.js" "history.js" "hosts.js" "login.js"
    "main.js" "plot.js" "ports.js" "readings.js" "reasons.js" "reports.js" "schedule.js" "table.js" "tiles.js"
    "verdict.js" "why.js"
);

/// The browser runs the files of the page only, connects to this server only, shows the page in no frame of another
/// site, and lets no script make markup of texts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// A report runs its own script only, in an origin of its own: it may come from another machine, and must not read what
/// the page may.
const REPORT_POLICY: &str = "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; \
                             style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// Whether a path is one of the page's own, without anything about this machine.
pub(super) fn is_page(path: &str) -> bool {
    path == DOCUMENT || path.strip_prefix("/page/").is_some_and(|name| text(name).is_some())
}

fn text(name: &str) -> Option<&'static str> {
    PAGE.iter().find_map(|(file, text)| (*file == name).then_some(*text))
}

/// Serves index.html, which loads the modules.
pub(super) async fn document() -> Response {
    answer("index.html", POLICY, text("index.html").unwrap_or_default())
}

/// A file that the document or its scripts load.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    let policy = if name == "report.html" { REPORT_POLICY } else { POLICY };
    match text(&name) {
        Some(text) => answer(&name, policy, text),
        None => Refusal { status: StatusCode::NOT_FOUND, ..bad(format!("no file `{name}`")) }.into_response(),
    }
}

/// A report of the lab.
pub(super) fn report(page: Body) -> Response {
    answer("report.html", REPORT_POLICY, page)
}

fn answer(name: &str, policy: &'static str, body: impl Into<Body>) -> Response {
    let kind = match name.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        _ => "text/html; charset=utf-8",
    };
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, policy),
        // The address may have the token.
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, body.into()).into_response()
}
