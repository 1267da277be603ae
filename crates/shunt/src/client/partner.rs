//! A client of `shunt lab agent --lend`: the port at the other end of the cable, on another machine.

use super::agent::{AgentUse, RemoteAgent};
use shunt_api::Failure;
use shunt_inspect::check::{Answer, Call, Partner, Request};
use std::{
    fmt,
    path::Path,
    process,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How long a partner may take for a request: restoring a port waits for its link.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(25);

/// A port that an agent lends to this process.
#[derive(Debug)]
pub(crate) struct RemotePartner {
    agent: RemoteAgent,
    url: String,
    port: String,
    /// A number that another check hardly has.
    check: u64,
    lost: Mutex<Option<String>>,
}

impl RemotePartner {
    /// Reaches the agent at a URL that lends this port.
    pub(crate) fn open(url: &str, token_file: Option<&Path>, port: String) -> Result<Self, Failure> {
        let agent = RemoteAgent::open(url, token_file, AgentUse::Lend(&port))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let check = now.as_nanos() as u64 ^ u64::from(process::id()).rotate_right(16);
        Ok(Self { agent, url: url.trim_end_matches('/').to_owned(), port, check, lost: Mutex::new(None) })
    }
}

impl fmt::Display for RemotePartner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.port, self.url)
    }
}

impl Partner for RemotePartner {
    fn port(&self) -> &str {
        &self.port
    }

    fn call(&self, request: Request) -> Result<Answer, String> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &*lost {
            return Err(why.clone());
        }
        let call = Call { check: self.check, port: self.port.clone(), request };
        let answer: Result<Answer, Failure> = self.agent.post("/v1/partner", &call, ANSWER_TIMEOUT);
        answer.map_err(|failure| lost.insert(failure.message).clone())
    }

    fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
