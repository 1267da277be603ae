//! Asks an agent.

use super::token::Token;
use crate::client;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, StatusCode, Uri,
    header::{AUTHORIZATION, HOST},
};
use serde::de::DeserializeOwned;
use shunt_api::{ErrorBody, Failure, FailureCode};
use shunt_lab::{
    dut::{About, Counters, Dut, Loaded, Mark},
    load::Load,
    traffic::Error,
};
use std::time::Duration;
use tokio::{net::TcpStream, runtime, time::timeout};

/// Counters of many devices take a while.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than thousands of counters take.
const ANSWER_BYTES: usize = 16 << 20;

/// An agent that has answered.
#[derive(Debug)]
pub(crate) struct Remote {
    url: String,
    /// ADDRESS:PORT.
    authority: String,
    token: Token,
    about: About,
}

impl Remote {
    /// Finds out whether it is there, lets us ask, and speaks as we do.
    pub(crate) fn find(url: &str, token: Token) -> Result<Self, Failure> {
        let authority = authority(url)?;
        let about = About { version: String::new(), cpus: Vec::new(), conditions: Default::default() };
        let mut remote = Self { url: url.trim_end_matches('/').to_owned(), authority, token, about };
        remote.about = remote.ask("/v1/agent")?;
        let (here, there) = (env!("CARGO_PKG_VERSION"), &remote.about.version);
        if there != here {
            let why = format!("its Shunt is version {there}, and this one {here}: install the same on both");
            return Err(remote.failure(&why));
        }
        Ok(remote)
    }

    fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.failure(&error.to_string()))?;
        let (status, body) = runtime.block_on(async {
            match timeout(PATIENCE, self.exchange(path)).await {
                Ok(answer) => answer,
                Err(_) => Err(self.failure(&format!("it did not answer within {} s", PATIENCE.as_secs()))),
            }
        })?;
        if status.is_success() {
            let strange = "its answer is not understood: is `shunt lab agent` of the same version there?";
            return serde_json::from_slice(&body).map_err(|_| self.failure(strange));
        }
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(ErrorBody { error }) if error.code == FailureCode::Unauthorized => Err(Failure::new(
                error.code,
                format!("{}: {}; both sides need the same", self.url, error.message),
            )),
            Ok(ErrorBody { error }) => Err(self.failure(&error.message)),
            Err(_) => Err(self.failure(&format!("it is no agent of Shunt: it answers {status}"))),
        }
    }

    async fn exchange(&self, path: &str) -> Result<(StatusCode, Vec<u8>), Failure> {
        let broken =
            |error: &dyn std::fmt::Display| self.failure(&format!("it ended the conversation: {error}"));
        let stream = TcpStream::connect(&self.authority).await.map_err(|error| {
            self.failure(&format!("nobody answers there ({error}): start `shunt lab agent` on the DUT"))
        })?;
        let request = Request::get(path)
            .header(HOST, &self.authority)
            .header(AUTHORIZATION, self.token.header())
            .body(Full::default())
            .map_err(|error| self.failure(&error.to_string()))?;
        let answer = client::send(stream, request).await.map_err(|error| broken(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
        Ok((status, body.map_err(|error| broken(&error))?.to_bytes().to_vec()))
    }

    fn failure(&self, why: &str) -> Failure {
        Failure::new(FailureCode::DutUnavailable, format!("the agent at {}: {why}", self.url))
    }
}

fn authority(url: &str) -> Result<String, Failure> {
    let wrong =
        || Failure::new(FailureCode::Usage, format!("--dut-agent {url}: write it as http://ADDRESS:PORT"));
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let authority = uri.authority().filter(|authority| authority.port().is_some()).ok_or_else(wrong)?;
    let plain = uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/") && uri.query().is_none();
    plain.then(|| authority.as_str().to_owned()).ok_or_else(wrong)
}

impl Dut for Remote {
    fn about(&self) -> &About {
        &self.about
    }

    fn mark(&self) -> Result<Mark, Error> {
        self.ask::<Loaded>("/v1/load").map(|loaded| loaded.mark).map_err(told)
    }

    fn load_since(&self, Mark(mark): Mark) -> Result<Load, Error> {
        let loaded: Loaded = self.ask(&format!("/v1/load?since={mark}")).map_err(told)?;
        loaded.load.ok_or_else(|| told(self.failure("it told no load")))
    }

    fn counters(&self) -> Result<Counters, Error> {
        self.ask("/v1/counters").map_err(told)
    }
}

fn told(failure: Failure) -> Error {
    Error::Dut(failure)
}
