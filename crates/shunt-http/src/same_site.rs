//! Refuses requests that a web page made. A browser on the machine of an operator, or of somebody who has forwarded a
//! port to this server, sends requests for any page that it shows. It marks them by headers that the page cannot
//! change.
//!
//! - `Origin` and `Sec-Fetch-Site` name the page of another site.
//! - `Host` names the server as the page's address does: a foreign name if a DNS server of the page's owner has led
//!   that name to this server.
//! - A change needs a content type that a page cannot send without asking first, and the server says no to whoever asks
//!   (`OPTIONS`).

use crate::{Refusal, bad};
use axum::http::{
    Method, StatusCode, Uri,
    header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN},
};
use hyper::Request;
use shunt_api::{Failure, FailureCode};
use std::{net::IpAddr, str};

/// The content type of a request that changes something.
const JSON: &str = "application/json";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names and addresses by which clients may call a server, besides `localhost` and the loopback addresses.
#[derive(Debug, Clone)]
pub struct Hosts {
    names: Vec<String>,
    /// What a client with another name should do.
    remedy: &'static str,
    /// The address of the server's end of the connection; `None` for a Unix socket, whose clients may leave `Host` out.
    own: Option<IpAddr>,
}

impl Hosts {
    /// Accepts these names and addresses. `remedy` tells a client with another name what to do.
    pub fn new(names: impl IntoIterator<Item = String>, remedy: &'static str) -> Self {
        Self { names: names.into_iter().map(|name| name.to_ascii_lowercase()).collect(), remedy, own: None }
    }

    /// Accepts the address of the server's end of a TCP connection, too.
    #[must_use]
    pub fn on_tcp(&self, own: IpAddr) -> Self {
        Self { own: Some(own.to_canonical()), ..self.clone() }
    }

    /// The refusal of a request that the page of another site made or may have made: every server asks this of every
    /// request.
    pub fn refusal<B>(&self, request: &Request<B>) -> Option<Refusal> {
        self.name_refusal(request).or_else(|| page_refusal(request))
    }

    /// The refusal of a request that calls the server by another name.
    fn name_refusal<B>(&self, request: &Request<B>) -> Option<Refusal> {
        let headers = request.headers();
        let is_left_out = !headers.contains_key(HOST) && self.own.is_none();
        let given = if is_left_out { Ok(None) } else { only(headers, &HOST).map(Some) };
        let wrong = match given {
            Ok(host) => [host, request.uri().authority().map(|named| named.as_str())]
                .into_iter()
                .flatten()
                .find(|host| !self.accepts(host)),
            Err(()) => Some(""),
        }?;
        Some(foreign(format!("`Host: {wrong}` is not this server: {}", self.remedy)))
    }

    fn accepts(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        let name = name.to_ascii_lowercase();
        let address = match name.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').and_then(|inner| inner.parse::<IpAddr>().ok()),
            None => name.parse().ok().filter(IpAddr::is_ipv4),
        };
        let address = address.map(|address| address.to_canonical());
        name == "localhost"
            || self.names.contains(&name)
            || address.is_some_and(|address| {
                address.is_loopback()
                    || self.own == Some(address)
                    || self.names.contains(&address.to_string())
            })
    }
}

/// The refusal of a request that a page of another site made, or that a page could have made without asking first.
fn page_refusal<B>(request: &Request<B>) -> Option<Refusal> {
    let headers = request.headers();
    let is_foreign_site = |site: &[u8]| !matches!(site, b"same-origin" | b"none");
    if headers.get_all(SEC_FETCH_SITE).iter().any(|site| is_foreign_site(site.as_bytes())) {
        return Some(foreign(
            "the page of another site made this request (Sec-Fetch-Site); type the address into a new tab"
                .to_owned(),
        ));
    }
    let own = only(headers, &HOST).map(|host| format!("http://{host}"));
    if let Some(origin) = headers.get_all(ORIGIN).iter().find(|origin| {
        own.as_ref().map_or(true, |own| !origin.as_bytes().eq_ignore_ascii_case(own.as_bytes()))
    }) {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        return Some(foreign(format!("a page of `Origin: {origin}` made this request; use curl or shunt")));
    }
    match *request.method() {
        Method::GET | Method::HEAD => None,
        Method::OPTIONS => Some(foreign("no page of another site may use this server (OPTIONS)".to_owned())),
        _ => {
            let kind = only(headers, &CONTENT_TYPE).unwrap_or_default();
            let kind = kind.split(';').next().unwrap_or_default().trim();
            (!kind.eq_ignore_ascii_case(JSON)).then(|| Refusal {
                status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
                ..bad(format!(
                    "a change needs the header `Content-Type: {JSON}`, which tells it from the request of a web page; with curl, add: \
                     -H 'Content-Type: {JSON}'"
                ))
            })
        }
    }
}

fn foreign(why: String) -> Refusal {
    Refusal { status: StatusCode::FORBIDDEN, failure: Failure::new(FailureCode::Unauthorized, why) }
}

/// The value of a header that the request has once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<&'h str, ()> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(()) };
    str::from_utf8(value.as_bytes()).map_err(|_| ())
}

/// The name or address of a `Host` header.
fn without_port(host: &str) -> Option<&str> {
    let uri: Uri = host.parse().ok()?;
    let authority = uri.authority()?;
    let plain = !host.contains(['@', '/', '?', '#']);
    plain
        .then(|| match host.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((name, port)) if port.parse::<u16>().is_ok() => name,
            Some(_) => "",
            None => host,
        })
        .filter(|name| *name == authority.host())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request<()> {
        let request = headers
            .iter()
            .fold(Request::builder().method(method).uri("/v1/stop"), |request, (name, value)| {
                request.header(*name, *value)
            });
        request.body(()).unwrap()
    }

    #[test]
    fn a_server_has_its_own_addresses_and_the_names_that_it_was_given() {
        let unix = Hosts::new(["Router.lan".to_owned()], "use localhost");
        let tcp = unix.on_tcp("192.0.2.1".parse().unwrap());
        let refused = |hosts: &Hosts, host: &str| hosts.refusal(&request("GET", &[("host", host)])).is_some();
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:9470",
            "127.9.9.9",
            "[::1]",
            "[::1]:9470",
            "router.lan:1",
        ] {
            assert!(!refused(&unix, host) && !refused(&tcp, host), "{host}");
        }
        for host in ["192.0.2.1", "192.0.2.1:9470", "[::ffff:192.0.2.1]:9470"] {
            assert!(refused(&unix, host) && !refused(&tcp, host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9470",
            "localhost.evil.example",
            "localhost@evil.example",
            "evil.example@localhost",
            "192.0.2.2",
            "[2001:db8::1]",
            "::1",
            "[::1",
            "localhost:",
            "localhost:x",
            "localhost:99999",
            "localhost/x",
            "localhost.",
            "127.0.0.1.evil.example",
            "0.0.0.0",
            "0x7f.1",
        ] {
            assert!(refused(&unix, host) && refused(&tcp, host), "{host}");
        }
        assert!(unix.refusal(&request("GET", &[])).is_none());
        assert!(tcp.refusal(&request("GET", &[])).is_some());
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert!(unix.refusal(&request("GET", &two)).is_some());
        let absolute =
            Request::builder().uri("http://evil.example/").header("host", "localhost").body(()).unwrap();
        assert!(unix.refusal(&absolute).is_some());
    }

    #[test]
    fn no_page_of_another_site_is_answered() {
        let host = ("host", "localhost:9470");
        let refused = |method: &str, name: &str, value: &str| {
            page_refusal(&request(method, &[host, ("content-type", JSON), (name, value)])).is_some()
        };
        for method in ["GET", "HEAD", "POST", "DELETE"] {
            for (name, value) in [
                ("origin", "http://evil.example"),
                ("origin", "null"),
                ("origin", ""),
                ("origin", "https://localhost:9470"),
                ("origin", "http://localhost:9471"),
                ("origin", "http://localhost:9470.evil.example"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-site", ""),
            ] {
                assert!(refused(method, name, value), "{method} {name}: {value}");
            }
            for (name, value) in [
                ("origin", "http://localhost:9470"),
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "none"),
            ] {
                assert!(!refused(method, name, value), "{method} {name}: {value}");
            }
        }
        assert!(refused("OPTIONS", "access-control-request-method", "POST"));
    }

    #[test]
    fn a_change_has_a_content_type_that_a_page_cannot_send() {
        for kind in ["application/json", "Application/JSON; charset=utf-8"] {
            assert!(page_refusal(&request("POST", &[("content-type", kind)])).is_none(), "{kind}");
        }
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
            "text/plain; application/json",
            "application/jsonx",
            "text/plain, application/json",
        ] {
            for method in ["POST", "PUT", "PATCH", "DELETE", "BREW"] {
                let refused = page_refusal(&request(method, &[("content-type", kind)])).unwrap();
                assert_eq!(refused.status, 415, "{method} {kind}");
                assert!(refused.failure.message.contains("-H 'Content-Type: application/json'"));
            }
        }
        let overridden = [("x-http-method-override", "GET"), ("content-type", "text/plain")];
        assert!(page_refusal(&request("POST", &overridden)).is_some());
        assert!(page_refusal(&request("POST", &[])).is_some());
        let two = [("content-type", "text/plain"), ("content-type", JSON)];
        assert!(page_refusal(&request("POST", &two)).is_some());
    }
}
