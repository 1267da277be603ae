//! Asks the daemon: one request per connection.

use crate::daemon::wait_gone;
use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, body::Bytes, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use shunt_api::{ErrorBody, Failure, FailureCode, Instance};
use std::{io, path::PathBuf, time::Duration};
use tokio::{net::UnixStream, time::timeout};

/// An instance's daemon, which may or may not be there.
#[derive(Debug)]
pub(crate) struct Client {
    instance: Instance,
    path: PathBuf,
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

    async fn connect(&self) -> anyhow::Result<UnixStream> {
        let error = match UnixStream::connect(&self.path).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let failure = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => not_running(&self.instance),
            io::ErrorKind::PermissionDenied => {
                Failure::new(FailureCode::NotRoot, format!("{}: only root may ask", self.path.display()))
            }
            _ => Failure::new(FailureCode::Internal, format!("{}: {error}", self.path.display())),
        };
        Err(anyhow::Error::new(error).context(failure))
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        stream: UnixStream,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<T> {
        let broken = || self.strange("it ended the conversation");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.with_context(broken)?;
        // Its errors reach the sender too.
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.with_context(broken)?;
        let good = answer.status().is_success();
        let body = answer.into_body().collect().await.with_context(broken)?.to_bytes();
        let strange = || self.strange("its answer is not understood; it may be of another version");
        if good {
            serde_json::from_slice(&body).with_context(strange)
        } else {
            let ErrorBody { error } = serde_json::from_slice(&body).with_context(strange)?;
            Err(error.into())
        }
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
