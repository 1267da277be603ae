//! A client of `shunt lab agent`: CPU load and counters of a DUT that is another machine, or a port that it lends.

use super::{
    http,
    ssh::{Destination, Ssh},
    token,
};
use crate::failure::usage;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, Response, StatusCode, Uri,
    body::{Bytes, Incoming},
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
    http::request,
};
use serde::{Serialize, de::DeserializeOwned};
use shunt_api::{ErrorBody, Failure, FailureCode};
use shunt_http::Token;
use shunt_lab::{
    Conditions,
    dut::{About, Counters, DutAgent, Loaded, Mark},
    load::Load,
    traffic::Error,
};
use std::{
    net::SocketAddr,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    runtime::{self, Runtime},
    time::timeout,
};

/// How long to wait for an answer; reading the counters of many devices takes a while.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long ssh may take to log in and the agent to calibrate its meter.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of an answer, so that a wrong server cannot fill the memory; thousands of counters take less.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// An agent that has answered once and is of our version.
#[derive(Debug)]
pub(crate) struct RemoteAgent {
    url: String,
    transport: Transport,
    about: About,
    /// The command that starts such an agent.
    start: String,
}

/// What an agent is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AgentUse<'p> {
    /// Load and counters of a DUT.
    Measure,
    /// To lend this port to a check.
    Lend(&'p str),
}

impl AgentUse<'_> {
    /// The option with the URL.
    fn option(self) -> &'static str {
        match self {
            Self::Measure => "--dut-agent",
            Self::Lend(_) => "--peer-agent",
        }
    }

    fn token_option(self) -> &'static str {
        match self {
            Self::Measure => "--dut-token-file",
            Self::Lend(_) => "--peer-token-file",
        }
    }

    /// The command that starts such an agent.
    fn command(self) -> String {
        match self {
            Self::Measure => "shunt lab agent".to_owned(),
            Self::Lend(port) => format!("shunt lab agent --lend {port}"),
        }
    }

    /// Why an agent that lends this port, or none, is the wrong one.
    fn objection(self, lent: Option<&str>) -> Option<String> {
        match (self, lent) {
            (Self::Measure, Some(lent)) => {
                Some(format!("it lends {lent} to `shunt check`; start one without --lend"))
            }
            (Self::Lend(port), lent) if lent != Some(port) => {
                let lent = lent.unwrap_or("no port");
                Some(format!("it lends {lent}; start it with `{}`", self.command()))
            }
            _ => None,
        }
    }
}

/// How the agent is reached.
#[derive(Debug)]
enum Transport {
    /// TCP to ADDRESS:PORT, with a token, and with a new connection for each request.
    Tcp { authority: String, token: Token },
    /// Standard input and output of an `ssh` process, which ends when this value is dropped.
    Ssh(Mutex<Link>),
}

/// The event loop that drives the connection of ssh, and the connection.
#[derive(Debug)]
struct Link {
    runtime: Option<Runtime>,
    ssh: Ssh,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Dropping a runtime blocks, and panics on a thread that runs another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl RemoteAgent {
    /// Reaches the agent at a URL: starts it with `ssh`, from `ssh://[USER@]HOST[:PORT]`, or connects to one at
    /// `http://ADDRESS:PORT`. Checks that it answers, takes the token, is of our version and has the right use.
    pub(crate) fn open(url: &str, token_file: Option<&Path>, of: AgentUse) -> Result<Self, Failure> {
        if !url.starts_with("ssh:") {
            if !url.starts_with("http:") {
                let why = format!("expected ssh://{url} or http://ADDRESS:PORT");
                return Err(usage(format!("{} {url}: {why}", of.option())));
            }
            return Self::connect(url, token::read(token_file, of.token_option())?, of);
        }
        if token_file.is_some() {
            let why = format!("an agent that ssh starts takes no token; leave out {}", of.token_option());
            return Err(usage(format!("{} {url}: {why}", of.option())));
        }
        Self::start_by_ssh(url, of)
    }

    pub(crate) fn connect(url: &str, token: Token, of: AgentUse) -> Result<Self, Failure> {
        Self::check(url, Transport::Tcp { authority: authority(url, of)?, token }, ANSWER_TIMEOUT, of)
    }

    fn start_by_ssh(url: &str, of: AgentUse) -> Result<Self, Failure> {
        let to =
            url.parse().ok().and_then(|uri| Destination::from_url(&uri)).ok_or_else(|| wrong_url(url, of))?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            Failure::new(FailureCode::Internal, format!("cannot start an event loop: {error}"))
        })?;
        let ssh = runtime.block_on(Ssh::start(&to, &format!("{} --stdio", of.command())))?;
        let transport = Transport::Ssh(Mutex::new(Link { runtime: Some(runtime), ssh }));
        Self::check(url, transport, START_TIMEOUT, of)
    }

    fn check(url: &str, transport: Transport, limit: Duration, of: AgentUse) -> Result<Self, Failure> {
        let conditions = Conditions::default();
        let about = About { version: String::new(), cpus: Vec::new(), lends: None, conditions };
        let url = url.trim_end_matches('/').to_owned();
        let mut agent = Self { url, transport, about, start: of.command() };
        agent.about = agent.get_within("/v1/agent", limit)?;
        let (here, there) = (env!("CARGO_PKG_VERSION"), &agent.about.version);
        if there != here {
            let why =
                format!("it runs Shunt {there}, and this machine {here}; install the same version on both");
            return Err(agent.failure(&why));
        }
        match of.objection(agent.about.lends.as_deref()) {
            Some(why) => Err(agent.failure(&why)),
            None => Ok(agent),
        }
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.get_within(path, ANSWER_TIMEOUT)
    }

    fn get_within<T: DeserializeOwned>(&self, path: &str, limit: Duration) -> Result<T, Failure> {
        self.request(Request::get(path), Vec::new(), limit)
    }

    /// Posts JSON, and waits this long for the answer.
    pub(super) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        limit: Duration,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| self.failure(&error.to_string()))?;
        self.request(Request::post(path).header(CONTENT_TYPE, "application/json"), body, limit)
    }

    fn request<T: DeserializeOwned>(
        &self,
        request: request::Builder,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<T, Failure> {
        let body = Full::new(Bytes::from(body));
        let late = |_| self.failure(&format!("no answer within {} s", limit.as_secs()));
        let (status, body) = match &self.transport {
            Transport::Tcp { authority, token } => {
                let runtime = runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(|error| self.failure(&error.to_string()))?;
                let exchange = self.exchange(request, body, authority, token);
                runtime.block_on(async { timeout(limit, exchange).await.map_err(late) })??
            }
            Transport::Ssh(link) => {
                let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
                let Link { runtime: Some(runtime), ssh } = &mut *link else {
                    return Err(self.failure("the connection is closed"));
                };
                let exchange = self.exchange_by_ssh(request, body, ssh);
                runtime.block_on(async { timeout(limit, exchange).await.map_err(late) })??
            }
        };
        if status.is_success() {
            let why = "unexpected answer; is `shunt lab agent` of the same version running there?";
            return serde_json::from_slice(&body).map_err(|_| self.failure(why));
        }
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(ErrorBody { error }) if error.code == FailureCode::Unauthorized => Err(Failure::new(
                error.code,
                format!("{}: {}; use the same token on both sides", self.url, error.message),
            )),
            Ok(ErrorBody { error }) => Err(self.failure(&error.message)),
            Err(_) => Err(self.failure(&format!("not a Shunt agent: it answered {status}"))),
        }
    }

    async fn exchange_by_ssh(
        &self,
        request: request::Builder,
        body: Full<Bytes>,
        ssh: &mut Ssh,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let request = request.header(HOST, "dut").body(body);
        let request = request.map_err(|error| self.failure(&error.to_string()))?;
        match ssh.send(request).await {
            Ok(answer) => self.collect(answer).await,
            Err(error) => {
                let exit = ssh.exit_text().await;
                Err(self.failure(&format!("{}: {error}", exit.as_deref().unwrap_or("the connection broke"))))
            }
        }
    }

    async fn exchange(
        &self,
        request: request::Builder,
        body: Full<Bytes>,
        authority: &str,
        token: &Token,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let stream = TcpStream::connect(authority).await.map_err(|error| {
            self.failure(&format!("cannot connect ({error}); start `{}` there", self.start))
        })?;
        // The agent accepts its address only, and no name of it.
        let peer = stream.peer_addr().map_err(|error| self.broken(&error))?;
        let request = request
            .header(HOST, SocketAddr::new(peer.ip(), peer.port()).to_string())
            .header(AUTHORIZATION, token.authorization())
            .body(body)
            .map_err(|error| self.failure(&error.to_string()))?;
        let answer = http::send(stream, request).await.map_err(|error| self.broken(&error))?;
        self.collect(answer).await
    }

    async fn collect(&self, answer: Response<Incoming>) -> Result<(StatusCode, Vec<u8>), Failure> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| self.broken(&error))?.to_bytes().to_vec()))
    }

    fn broken(&self, error: &dyn std::fmt::Display) -> Failure {
        self.failure(&format!("it closed the connection before the answer was complete: {error}"))
    }

    fn failure(&self, why: &str) -> Failure {
        Failure::new(FailureCode::DutUnavailable, format!("the agent at {}: {why}", self.url))
    }
}

fn wrong_url(url: &str, of: AgentUse) -> Failure {
    let forms = "ssh://[USER@]HOST[:PORT] or http://ADDRESS:PORT";
    usage(format!("{} {url}: expected {forms}", of.option()))
}

fn authority(url: &str, of: AgentUse) -> Result<String, Failure> {
    let wrong = || wrong_url(url, of);
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let authority = uri.authority().filter(|authority| authority.port().is_some()).ok_or_else(wrong)?;
    let plain = uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/") && uri.query().is_none();
    plain.then(|| authority.as_str().to_owned()).ok_or_else(wrong)
}

impl DutAgent for RemoteAgent {
    fn about(&self) -> &About {
        &self.about
    }

    fn mark(&self) -> Result<Mark, Error> {
        self.get::<Loaded>("/v1/load").map(|loaded| loaded.mark).map_err(Error::Dut)
    }

    fn load_since(&self, Mark(mark): Mark) -> Result<Load, Error> {
        let loaded: Loaded = self.get(&format!("/v1/load?since={mark}")).map_err(Error::Dut)?;
        loaded.load.ok_or_else(|| Error::Dut(self.failure("its answer has no CPU load")))
    }

    fn counters(&self) -> Result<Counters, Error> {
        self.get("/v1/counters").map_err(Error::Dut)
    }
}
