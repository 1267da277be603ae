//! A client of the daemon's control socket. Each request has a connection of its own.

use super::{http::send, instances};
use crate::daemon::{POLL_INTERVAL, runtime_dir, state_dir, wait_gone};
use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HOST},
};
use serde::{Serialize, de::DeserializeOwned};
use shunt_api::{ErrorBody, Failure, FailureCode, Instance, RUNTIME_DIR_VARIABLE, cannot_read};
use std::{io, path::PathBuf, time::Duration};
use tokio::{
    net::UnixStream,
    time::{Instant, sleep, timeout},
};

/// The control socket of an instance. The daemon need not be running.
#[derive(Debug)]
pub(crate) struct Client {
    instance: Instance,
    path: PathBuf,
}

/// An answer that the daemon sends one JSON line at a time.
pub(crate) struct Lines<'c> {
    client: &'c Client,
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines<'_> {
    /// The next value; none when the daemon has closed the connection.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return self.client.read(&line).map(Some);
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.with_context(|| self.client.broken())?;
            self.rest.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        }
    }
}

/// How long to wait for an answer. The daemon gives up on its slowest answer earlier than this and reports why.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(25);

/// How long the next daemon of an instance may take to listen after the one before has ended. `shunt restart` leaves no
/// such gap; a service manager that stops one and starts the other does.
const NEXT_DAEMON: Duration = Duration::from_secs(5);

/// A daemon that was killed takes a moment until its process is gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

impl Client {
    pub(crate) fn new(instance: &Instance) -> Self {
        Self { instance: instance.clone(), path: instance.socket_path(&runtime_dir()) }
    }

    pub(crate) const fn instance(&self) -> &Instance {
        &self.instance
    }

    /// The process ID of the daemon; none if no daemon listens on the socket.
    pub(crate) async fn pid(&self) -> anyhow::Result<Option<u32>> {
        let stream = match self.connect().await {
            Ok(stream) => stream,
            Err(error) if is_not_running(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match peer_pid(&stream) {
            Some(pid) => Ok(Some(pid)),
            None => Err(self.daemon_failure("its process ID is not visible from this PID namespace").into()),
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.request(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.request(Method::POST, path, Bytes::new()).await
    }

    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.request(method, path, serde_json::to_vec(body)?.into()).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<T> {
        self.read(&self.answer(method, path, body).await?)
    }

    /// The body of a good answer. Does not depend on its type, so that programs contain it once.
    async fn answer(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let exchange = async {
            let stream = self.connect().await?;
            let peer = peer_pid(&stream);
            let answer = self.exchange(stream, request).await;
            // If the daemon was killed amid the request, report "not running" instead of a broken connection.
            match (answer, peer) {
                (Err(error), Some(pid)) if is_cut_off(&error) && wait_gone(pid, EXIT_TIMEOUT).await => {
                    Err(error.context(not_running(&self.instance)))
                }
                (answer, _) => answer,
            }
        };
        match timeout(ANSWER_TIMEOUT, exchange).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
                Err(self.daemon_failure(&why).into())
            }
        }
    }

    /// Requests an answer without an end. Returns as soon as the head of the answer has arrived.
    pub(crate) async fn lines(&self, path: &str) -> anyhow::Result<Lines<'_>> {
        let request = Request::get(path).header(HOST, "localhost").body(Full::default())?;
        let exchange = async { self.send_over(self.connect().await?, request).await };
        let Ok(answer) = timeout(ANSWER_TIMEOUT, exchange).await else {
            let why = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
            return Err(self.daemon_failure(&why).into());
        };
        let answer = answer?;
        if !answer.status().is_success() {
            return Err(self.failure(answer).await);
        }
        Ok(Lines { client: self, body: answer.into_body(), rest: Vec::new() })
    }

    async fn connect(&self) -> anyhow::Result<UnixStream> {
        let error = match UnixStream::connect(&self.path).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let failure = match error.kind() {
            // ConnectionReset: the daemon closed the socket before it accepted the connection.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
                not_running(&self.instance)
            }
            io::ErrorKind::PermissionDenied => Failure::new(
                FailureCode::NotRoot,
                format!(
                    "{}: only root may connect; use sudo (members of the group `read_group` in the configuration \
                     may read without it)",
                    self.path.display()
                ),
            ),
            _ => Failure::new(
                FailureCode::Internal,
                format!(
                    "{}: {}; {RUNTIME_DIR_VARIABLE} names the directory",
                    self.path.display(),
                    cannot_read(&error)
                ),
            ),
        };
        Err(anyhow::Error::new(error).context(failure))
    }

    async fn exchange(&self, stream: UnixStream, request: Request<Full<Bytes>>) -> anyhow::Result<Bytes> {
        let answer = self.send_over(stream, request).await?;
        if !answer.status().is_success() {
            return Err(self.failure(answer).await);
        }
        self.body(answer).await
    }

    async fn send_over(
        &self,
        stream: UnixStream,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Response<Incoming>> {
        send(stream, request).await.with_context(|| self.broken())
    }

    async fn body(&self, answer: Response<Incoming>) -> anyhow::Result<Bytes> {
        Ok(answer.into_body().collect().await.with_context(|| self.broken())?.to_bytes())
    }

    fn read<T: DeserializeOwned>(&self, text: &[u8]) -> anyhow::Result<T> {
        serde_json::from_slice(text).with_context(|| self.not_understood())
    }

    /// What the daemon says in an answer that is not good.
    async fn failure(&self, answer: Response<Incoming>) -> anyhow::Error {
        let read = self.body(answer).await.and_then(|body| self.read(&body));
        read.map_or_else(|error| error, |ErrorBody { error }| error.into())
    }

    fn broken(&self) -> Failure {
        self.daemon_failure("it closed the connection before the answer was complete")
    }

    fn not_understood(&self) -> Failure {
        self.daemon_failure("unexpected answer; shunt and shuntd may be of different versions")
    }

    fn daemon_failure(&self, why: &str) -> Failure {
        let text = format!(
            "the daemon of instance `{}`: {why}; see its log {}, or stop it with `shunt down`",
            self.instance,
            self.instance.log_path(&runtime_dir()).display()
        );
        Failure::new(FailureCode::Internal, text)
    }
}

/// Asks, and asks again while the instance may be between two daemons.
///
/// # Errors
/// Those of the last answer.
pub(crate) async fn across_restarts<T>(mut ask: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + NEXT_DAEMON;
    loop {
        match ask().await {
            // A daemon that is about to end may refuse, too.
            Err(_) if Instant::now() < deadline => sleep(POLL_INTERVAL).await,
            answer => return answer,
        }
    }
}

/// Whether this is what a client sees of a daemon that ends.
pub(crate) fn has_ended(error: &anyhow::Error) -> bool {
    is_not_running(error) || is_cut_off(error)
}

/// The process ID of the listener; none if it is not visible from this PID namespace.
fn peer_pid(stream: &UnixStream) -> Option<u32> {
    let pid = stream.peer_cred().ok()?.pid()?;
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

fn is_cut_off(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<hyper::Error>().is_some())
}

fn not_running(instance: &Instance) -> Failure {
    instances::not_running(instance, &runtime_dir(), &state_dir())
}

/// Whether a request failed because no daemon runs.
pub(crate) fn is_not_running(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.code == FailureCode::NotRunning)
}
