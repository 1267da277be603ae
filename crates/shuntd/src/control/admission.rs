//! Identifies clients and decides which requests they may make.

use super::page;
use axum::http::Method;
use hyper::Request;
use nix::unistd::geteuid;
use shunt_api::{Config, Failure, FailureCode};
use shunt_http::Token;
use std::path::Path;
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
        let token = self.token.as_ref()?;
        let how = "open http://ADDRESS/ and type the token of `page_token_file`";
        if page::is_page(request.uri().path()) {
            // A browser that opens or reloads the page sends no header. The page is the same everywhere, so it is no
            // secret; its script asks for the token, and sends it with each request for data.
            let query = request.uri().query().unwrap_or_default();
            let typed = query.split('&').find_map(|parameter| parameter.strip_prefix("token="));
            let is_wrong = typed.is_some_and(|typed| !token.matches(typed.as_bytes()));
            return is_wrong.then(|| {
                Failure::new(FailureCode::Unauthorized, format!("the token in the address is wrong; {how}"))
            });
        }
        token
            .refusal(request)
            .map(|failure| Failure::new(failure.code, format!("{}; or {how}", failure.message)))
    }
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
    fn a_page_with_a_token_asks_for_it_with_all_data() {
        let access = PageAccess { token: Some(Token::parse("0123456789abcdef", "here").unwrap()) };
        let right = [("authorization", "Bearer 0123456789abcdef")];
        for path in ["/v1/status", "/v1/flows?rate_over_ms=0"] {
            assert_eq!(refusal(&access, path, &right), None);
            assert!(
                refusal(&access, path, &[("authorization", "Bearer 0123456789abcdeg")])
                    .unwrap()
                    .contains("wrong")
            );
            assert!(refusal(&access, path, &[]).unwrap().contains("type the token"));
        }
        assert_eq!(refusal(&access, "/?token=0123456789abcdef", &[]), None);
        assert!(refusal(&access, "/?token=0123456789abcde", &[]).unwrap().contains("is wrong"));
        // Reloaded: the script has taken the token out of the address.
        for path in ["/", "/page/main.js", "/page/page.css"] {
            assert_eq!(refusal(&access, path, &[]), None, "{path}");
        }
        for path in ["/page/none.js", "/page/", "/page/../v1/status", "/page//v1/status", "//v1/status"] {
            assert!(refusal(&access, path, &[]).is_some(), "{path}");
        }
        // Addresses of data end up in logs and histories.
        assert!(refusal(&access, "/v1/status?token=0123456789abcdef", &[]).is_some());
    }
}
