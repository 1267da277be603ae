//! Sends bytes to the control socket. A loop answers every call, without the kernel.
//!
//! For any input, the server must answer or hang up, report an error in one line, and pass on complete requests only.
//! Time is simulated: it advances when all tasks wait, so timeouts cost nothing.

use shunt_api::{
    ErrorBody, Failure, HistoryTable, Reload, ReloadRequest, Restart, Selection, SlowTable, StaticRemoval,
    StaticTable, Status, Usage,
};
use shuntd::control::{
    self, Call, FlowSource, Found, HostTotals, Job, Listeners, Listing, MetricsSource, TrackedEntries,
};
use std::{cell::RefCell, collections::BTreeMap, io, path::PathBuf, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    runtime::{self, Runtime},
    sync::{broadcast, mpsc},
};

const STATUS: &[u8] = b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Check the server's health once per this many inputs.
const VISIT: u32 = 64;

thread_local! {
    static SERVED: RefCell<Option<Served>> = const { RefCell::new(None) };
}

/// Bytes of a client: the server answers or hangs up, and goes on to serve.
pub fn control(bytes: &[u8]) -> bool {
    SERVED.with_borrow_mut(|served| {
        let served = served.get_or_insert_with(|| match Served::start() {
            Ok(served) => served,
            Err(error) => panic!("no control socket: {error}"),
        });
        served.asked += 1;
        let answer = served.exchange(bytes, served.asked.is_multiple_of(2));
        let accepted = judge(bytes, &answer);
        if served.asked.is_multiple_of(VISIT) {
            let answer = served.exchange(STATUS, false);
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
        }
        accepted
    })
}

/// Whether the request was accepted.
fn judge(data: &[u8], answer: &[u8]) -> bool {
    let answer = answer.strip_prefix(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(answer);
    if answer.is_empty() {
        return false;
    }
    let text = std::str::from_utf8(answer).expect("an answer is text");
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer is complete");
    let code: u16 = head.get(9..12).and_then(|code| code.parse().ok()).expect("an answer has a status");
    assert!(code == 200 || (400..500).contains(&code), "{text}");
    if code == 200 || data.trim_ascii_start().starts_with(b"HEAD ") {
        return code == 200;
    }
    let refusal: ErrorBody = serde_json::from_str(body).expect("a refusal is JSON");
    let message = refusal.error.message;
    assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
    false
}

struct Served {
    runtime: Runtime,
    socket: PathBuf,
    asked: u32,
    _directory: tempfile::TempDir,
}

impl Served {
    fn start() -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("fuzz.sock");
        let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let (listeners, _entered) = (Listeners::at(&socket)?, runtime.enter());
        let (calls, asked) = mpsc::channel(16);
        runtime.spawn(control::serve(listeners, calls));
        runtime.spawn(answer(asked));
        Ok(Self { runtime, socket, asked: 0, _directory: directory })
    }

    /// Sends bytes and returns everything that the server answers until it closes. If the client `hangs_up` after the
    /// bytes, the server need not answer.
    fn exchange(&mut self, bytes: &[u8], hangs_up: bool) -> Vec<u8> {
        self.runtime.block_on(async {
            let stream = UnixStream::connect(&self.socket).await.expect("the server listens");
            let (mut read, mut write) = stream.into_split();
            let sent = async {
                // The server may close before it has read everything.
                let _ = write.write_all(bytes).await;
                if hangs_up {
                    let _ = write.shutdown().await;
                }
            };
            let mut answer = Vec::new();
            let (_, got) = tokio::join!(sent, read.read_to_end(&mut answer));
            // Closing with unread bytes resets the connection, and the answer may be lost.
            got.map_or(Vec::new(), |_| answer)
        })
    }
}

#[derive(Debug)]
struct Nothing;

impl FlowSource for Nothing {
    fn sample(&mut self) {}

    fn list(self: Box<Self>) -> Result<Listing, Failure> {
        Ok(Box::new(std::iter::empty()))
    }
}

/// Stands for the daemon's loop. Sending an answer fails if the client has gone, which is no error.
async fn answer(mut calls: mpsc::Receiver<Call>) {
    while let Some(call) = calls.recv().await {
        let _gone = match call {
            Call::Status(reply) => reply.send(Status::default()).is_err(),
            Call::Metrics(reply) => {
                let source = MetricsSource {
                    status: Status::default(),
                    ports: BTreeMap::new(),
                    queues: Vec::new(),
                    hosts: HostTotals::default(),
                    started_at: Duration::from_secs(1),
                };
                reply.send(source).is_err()
            }
            Call::Flows(reply) => reply.send(Box::new(Nothing)).is_err(),
            Call::Slow(_, reply) => {
                reply.send(Job::new(|| Ok(Job::new(|| Ok(SlowTable::default()))))).is_err()
            }
            Call::Find(wanted, reply) => {
                check_round_trip(&wanted);
                reply.send(Job::new(|| Ok(Found::default()))).is_err()
            }
            Call::FindNamed(_, reply) => reply.send(Job::new(|| Ok(Found::default()))).is_err(),
            Call::Explain(_, reply) => reply.send(Ok(Vec::new())).is_err(),
            Call::Conntrack(reply) => {
                let none = || TrackedEntries { counted: true, entries: Box::new(std::iter::empty()) };
                reply.send(Job::new(move || Ok(none()))).is_err()
            }
            Call::History(_, reply) => reply.send(Job::new(|| Ok(HistoryTable::default()))).is_err(),
            Call::Verified(_, reply) => reply.send(()).is_err(),
            Call::MeasurePrograms(reply) => reply.send(()).is_err(),
            // A stream that ends at once.
            Call::Watch(reply) => reply.send(Ok(broadcast::channel(1).1)).is_err(),
            Call::Usage(_, reply) => reply.send(Ok(Job::new(|| Ok(Usage::default())))).is_err(),
            Call::Flush(reply) => reply.send(3).is_err(),
            Call::Reload(request, reply) => {
                assert_eq!(request, round_trip::<ReloadRequest>(&request));
                reply.send(Ok(Reload::default())).is_err()
            }
            Call::Stop(reply) => reply.send(()).is_err(),
            Call::Restart(reply) => reply.send(Ok(Restart::default())).is_err(),
            Call::RestartProgress(reply) => reply.send(Restart::default()).is_err(),
            Call::AddStatic(table, reply) => {
                table.check().expect("a table that was passed on is valid");
                assert_eq!(table, round_trip::<StaticTable>(&table));
                reply.send(Ok(table.flow.len() as u64)).is_err()
            }
            Call::DelStatic(removal, reply) => {
                assert_eq!(removal, round_trip::<StaticRemoval>(&removal));
                reply.send(Ok(removal.flow.len() as u64)).is_err()
            }
            Call::ListStatic(reply) => reply.send(StaticTable::default()).is_err(),
            Call::AddOff(_, reply) => reply.send(Ok((1, Job::new(|| Ok(()))))).is_err(),
            Call::DelOff(_, reply) => reply.send(Ok((0, Job::new(|| Ok(()))))).is_err(),
            Call::ListOff(reply) => reply.send(Vec::new()).is_err(),
            Call::AddTaps(request, reply) => reply.send(Ok(request.entering.len() as u64)).is_err(),
            Call::DelTaps(reply) => reply.send(0).is_err(),
            Call::Qos(reply) => reply.send(Vec::new()).is_err(),
            Call::SetQos(table, reply) => reply.send(Ok(table.len() as u64)).is_err(),
            Call::DelQos(removal, reply) => reply.send(Ok(removal.ports.len() as u64)).is_err(),
        };
    }
}

fn check_round_trip(wanted: &Selection) {
    let again: Selection =
        serde_urlencoded::from_str(&wanted.query()).expect("a parsed value can be serialized");
    assert_eq!(*wanted, again);
}

/// Serializes a value and parses it again.
fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let text = serde_json::to_string(value).expect("a parsed value can be serialized");
    serde_json::from_str(&text).expect("a serialized value can be parsed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{corpus, corpus_and_changes};

    #[test]
    fn the_server_answers_changed_requests_or_hangs_up() {
        corpus_and_changes("control", 2_000, control);
        // Every other client hangs up, and may get no answer.
        let accepted = corpus("control").iter().filter(|bytes| control(bytes) | control(bytes)).count();
        assert!(accepted >= 17, "only {accepted} requests were accepted, which tests little");
    }
}
