//! Identifies clients and decides which requests they may make.

use axum::http::{Method, header::HOST};
use hyper::Request;
use nix::unistd::geteuid;
use shunt_api::{Config, Failure, FailureCode};
use shunt_http::Token;
use std::{net::IpAddr, path::Path};
use tokio::net::UnixStream;

/// The identity of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Client {
    /// Root, or the user that the daemon runs as.
    Owner,
    /// The uid of another user, who is a member of `read_group`.
    Reader(u32),
    /// A client of the metrics address, over TCP.
    Network,
    /// A client of the page's address, over TCP.
    Page,
}

impl Client {
    /// The user at the other end of the socket, as the kernel reports it.
    pub(super) fn from_peer(stream: &UnixStream) -> Self {
        match stream.peer_cred().map(|peer| peer.uid()) {
            Ok(uid) if uid == 0 || uid == geteuid().as_raw() => Self::Owner,
            Ok(uid) => Self::Reader(uid),
            // The client has gone.
            Err(_) => Self::Reader(u32::MAX),
        }
    }

    /// The refusal of a request with this method; `None` if the client may make it.
    pub(super) fn refusal(self, method: &Method) -> Option<Failure> {
        if self == Self::Owner || *method == Method::GET || *method == Method::HEAD {
            return None;
        }
        let why = match self {
            Self::Network => "this address serves metrics only (GET)".to_owned(),
            Self::Page => "this address serves a page that changes nothing (GET)".to_owned(),
            _ => format!("members of the read_group may only read (GET); use sudo for {method}"),
        };
        Some(Failure::new(FailureCode::ReadOnly, why))
    }
}

/// The clients that the page's address serves.
#[derive(Debug, Clone)]
pub(super) struct PageAccess {
    token: Option<Token>,
}

impl PageAccess {
    pub(super) fn from_config(config: &Config) -> Result<Self, Failure> {
        let file = Some(&config.page_token_file).filter(|file| !file.is_empty());
        let named =
            |failure: Failure| Failure::new(failure.code, format!("page_token_file: {}", failure.message));
        let token = file.map(|file| Token::from_file(Path::new(file)).map_err(named)).transpose()?;
        Ok(Self { token })
    }

    /// The refusal of a request; None if it is served.
    pub(super) fn refusal<B>(&self, request: &Request<B>) -> Option<Failure> {
        let Some(token) = &self.token else { return foreign_host(request) };
        // A browser that opens the page sends no header, so the page itself takes the token from the address.
        let query = request.uri().query().filter(|_| request.uri().path() == "/").unwrap_or_default();
        let typed = query.split('&').find_map(|parameter| parameter.strip_prefix("token="));
        match typed {
            Some(typed) if token.matches(typed.as_bytes()) => None,
            _ => token.refusal(request).map(|failure| {
                let how = "open http://ADDRESS/?token=TOKEN, with the token of `page_token_file`";
                Failure::new(failure.code, format!("{}; or {how}", failure.message))
            }),
        }
    }
}

/// Refuses a request to the page without a token if it names the server by another name than an address or `localhost`. A web site whose
/// name leads to 127.0.0.1 could otherwise read the page in a visitor's browser.
fn foreign_host<B>(request: &Request<B>) -> Option<Failure> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    let is_address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    if is_address || name == "localhost" {
        return None;
    }
    let why = format!("`{name}` is not this machine: use its address, or configure `page_token_file`");
    Some(Failure::new(FailureCode::Unauthorized, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(access: &PageAccess, path: &str, headers: &[(&str, &str)]) -> Option<String> {
        let request = headers
            .iter()
            .fold(Request::builder().uri(path), |request, (name, value)| request.header(*name, *value));
        access.refusal(&request.body(()).unwrap()).map(|failure| failure.message)
    }

    #[test]
    fn a_page_with_a_token_asks_for_it_everywhere() {
        let access = PageAccess { token: Some(Token::parse("0123456789abcdef", "here").unwrap()) };
        let right = [("authorization", "Bearer 0123456789abcdef")];
        for path in ["/", "/v1/status", "/v1/flows?rate_over_ms=0"] {
            assert_eq!(refusal(&access, path, &right), None);
            assert!(
                refusal(&access, path, &[("authorization", "Bearer 0123456789abcdeg")])
                    .unwrap()
                    .contains("wrong")
            );
            assert!(refusal(&access, path, &[]).unwrap().contains("/?token=TOKEN"));
        }
        assert_eq!(refusal(&access, "/?token=0123456789abcdef", &[]), None);
        assert!(refusal(&access, "/?token=0123456789abcde", &[]).is_some());
        // Addresses of data end up in logs and histories.
        assert!(refusal(&access, "/v1/status?token=0123456789abcdef", &[]).is_some());
    }

    #[test]
    fn a_page_without_a_token_is_not_served_under_a_foreign_name() {
        let access = PageAccess { token: None };
        for host in ["127.0.0.1:9470", "[::1]:9470", "localhost:9470", "localhost", "127.0.0.1"] {
            assert_eq!(refusal(&access, "/v1/flows", &[("host", host)]), None, "{host}");
        }
        for host in ["evil.example:9470", "evil.example", "", "localhost.evil.example"] {
            assert!(refusal(&access, "/", &[("host", host)]).unwrap().contains("page_token_file"), "{host}");
        }
    }
}
