//! Asks the daemon: one request per connection.

use crate::daemon::wait_gone;
use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::HOST,
};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use shunt_api::{ErrorBody, Failure, FailureCode, Instance};
use std::{io, path::PathBuf, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    time::timeout,
};

/// An instance's daemon, which may or may not be there.
#[derive(Debug)]
pub(crate) struct Client {
    instance: Instance,
    path: PathBuf,
}

/// Values that the daemon sends one by one.
pub(crate) struct Lines<'c> {
    client: &'c Client,
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines<'_> {
    /// The next one; none when the daemon has ended it.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).with_context(|| self.client.not_understood());
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.with_context(|| self.client.broken())?;
            self.rest.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        }
    }
}

/// Longer than the daemon itself gives its slowest answer, to be told why rather than to guess.
const PATIENCE: Duration = Duration::from_secs(25);

const DYING_TIME: Duration = Duration::from_secs(2);

impl Client {
    pub(crate) fn new(instance: &Instance) -> Self {
        Self { instance: instance.clone(), path: instance.socket_path() }
    }

    /// The process behind the socket; none if nobody is there.
    pub(crate) async fn pid(&self) -> anyhow::Result<Option<u32>> {
        let stream = match self.connect().await {
            Ok(stream) => stream,
            Err(error) if is_not_running(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match peer_of(&stream) {
            Some(pid) => Ok(Some(pid)),
            None => Err(self.strange("its process is not visible from here").into()),
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(Method::POST, path, Bytes::new()).await
    }

    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.ask(method, path, serde_json::to_vec(body)?.into()).await
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<T> {
        let request =
            Request::builder().method(method).uri(path).header(HOST, "localhost").body(Full::new(body))?;
        let asked = async {
            let stream = self.connect().await?;
            let peer = peer_of(&stream);
            let answer = self.exchange(stream, request).await;
            // One that was killed takes a moment to close its socket.
            match (answer, peer) {
                (Err(error), Some(pid)) if is_cut_off(&error) && wait_gone(pid, DYING_TIME).await => {
                    Err(error.context(not_running(&self.instance)))
                }
                (answer, _) => answer,
            }
        };
        match timeout(PATIENCE, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = format!("it did not answer within {} s", PATIENCE.as_secs());
                Err(self.strange(&why).into())
            }
        }
    }

    /// An answer that goes on and on; it has begun when this returns.
    pub(crate) async fn lines(&self, path: &str) -> anyhow::Result<Lines<'_>> {
        let request = Request::get(path).header(HOST, "localhost").body(Full::default())?;
        let asked = async { self.answer(self.connect().await?, request).await };
        let Ok(answer) = timeout(PATIENCE, asked).await else {
            return Err(self.strange("it did not answer").into());
        };
        let answer = answer?;
        if !answer.status().is_success() {
            return self.read_failure(answer).await;
        }
        Ok(Lines { client: self, body: answer.into_body(), rest: Vec::new() })
    }

    async fn connect(&self) -> anyhow::Result<UnixStream> {
        let error = match UnixStream::connect(&self.path).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let failure = match error.kind() {
            // Reset: it was closed before it took us.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
                not_running(&self.instance)
            }
            io::ErrorKind::PermissionDenied => Failure::new(
                FailureCode::NotRoot,
                format!(
                    "{}: only root may ask, and for reading the members of the group that `read_group` names in the \
                     configuration; use sudo",
                    self.path.display()
                ),
            ),
            _ => Failure::new(FailureCode::Internal, format!("{}: {error}", self.path.display())),
        };
        Err(anyhow::Error::new(error).context(failure))
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        stream: UnixStream,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<T> {
        let answer = self.answer(stream, request).await?;
        if !answer.status().is_success() {
            return self.read_failure(answer).await;
        }
        let body = answer.into_body().collect().await.with_context(|| self.broken())?.to_bytes();
        serde_json::from_slice(&body).with_context(|| self.not_understood())
    }

    async fn answer(
        &self,
        stream: UnixStream,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Response<Incoming>> {
        send(stream, request).await.with_context(|| self.broken())
    }

    async fn read_failure<T>(&self, answer: Response<Incoming>) -> anyhow::Result<T> {
        let body = answer.into_body().collect().await.with_context(|| self.broken())?.to_bytes();
        let ErrorBody { error } = serde_json::from_slice(&body).with_context(|| self.not_understood())?;
        Err(error.into())
    }

    fn broken(&self) -> Failure {
        self.strange("it ended the conversation")
    }

    fn not_understood(&self) -> Failure {
        self.strange("its answer is not understood; it may be of another version")
    }

    fn strange(&self, why: &str) -> Failure {
        let text = format!(
            "the daemon of instance `{}`: {why}; see {}, or end it with `shunt down`",
            self.instance,
            self.instance.log_path().display()
        );
        Failure::new(FailureCode::Internal, text)
    }
}

/// One request over a connection of its own; the answer has begun when this returns.
pub(crate) async fn send<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Its errors reach the sender too.
    tokio::spawn(connection);
    sender.send_request(request).await
}

/// The process that listens on the other end; none if it is not visible from this PID namespace.
fn peer_of(stream: &UnixStream) -> Option<u32> {
    let pid = stream.peer_cred().ok()?.pid()?;
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

fn is_cut_off(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<hyper::Error>().is_some())
}

fn not_running(instance: &Instance) -> Failure {
    let text = if *instance == Instance::default() {
        "not running; start it with `shunt up`".to_owned()
    } else {
        format!("instance `{instance}` is not running; start it with `shunt up --instance {instance}`")
    };
    Failure::new(FailureCode::NotRunning, text)
}

fn is_not_running(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.code == FailureCode::NotRunning)
}
