//! A netlink socket for requests and their answers.

use crate::{
    Error,
    netlink_message::{
        Batch, Message, Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE,
        NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, errno,
    },
};
use netlink_sys::{Socket, SocketAddr};
use nix::sys::{
    socket::{setsockopt, sockopt},
    time::{TimeVal, TimeValLike},
};
use std::io;

/// The size of the receive buffer. The kernel splits dumps into pieces of the size of the last read, at most 32 KiB.
const BUFFER_BYTES: usize = 64 << 10;

/// How often a dump is repeated because the table changed meanwhile.
const DUMP_ATTEMPTS: usize = 16;

/// The receive timeout. The kernel answers within send(), so this is only a guard against kernel bugs.
const RECEIVE_TIMEOUT_S: i64 = 5;

/// A socket of one netlink protocol, for one request at a time.
pub struct Channel {
    protocol: &'static str,
    socket: Socket,
    seq: u32,
    buffer: Vec<u8>,
}

/// One message of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub kind: u16,
    pub payload: Vec<u8>,
}

/// The part of an answer that has been received.
#[derive(Default)]
struct Progress {
    /// The kernel says that the table changed during the dump.
    interrupted: bool,
    /// The errno of the last message, `Some(None)` for success; `None` before the last message.
    end: Option<Option<i32>>,
}

impl Progress {
    /// The result of a complete answer: whether the table changed while it was read.
    fn result(self, request: &'static str) -> Result<bool, Error> {
        match self.end.flatten() {
            Some(code) => Err(Error::Refused { request, source: io::Error::from_raw_os_error(code) }),
            None => Ok(self.interrupted),
        }
    }
}

/// A table that is being read. The kernel makes each piece when it is asked for it.
pub(crate) struct Dump {
    channel: Channel,
    request: &'static str,
    progress: Progress,
}

impl Dump {
    /// Passes the messages of the next piece to `each`. Returns whether there was one.
    pub(crate) fn next_piece(&mut self, each: impl FnMut(Message)) -> Result<bool, Error> {
        if self.progress.end.is_some() {
            return Ok(false);
        }
        self.channel.receive_piece(&mut self.progress, each)?;
        match self.progress.end.flatten() {
            Some(code) => {
                let source = io::Error::from_raw_os_error(code);
                Err(Error::Refused { request: self.request, source })
            }
            None => Ok(true),
        }
    }
}

impl Channel {
    /// Opens a socket in the network namespace of the calling thread. `protocol` names the protocol in errors.
    ///
    /// # Errors
    /// When the kernel lacks the protocol, or the process may not use it.
    pub fn open(number: isize, protocol: &'static str) -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(number)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // Errors then come without a copy of the request.
            socket.set_cap_ack(true)?;
            setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(RECEIVE_TIMEOUT_S))?;
            Ok(socket)
        };
        let socket = open().map_err(|source| Error::Socket { protocol, source })?;
        Ok(Self { protocol, socket, seq: 0, buffer: Vec::with_capacity(BUFFER_BYTES) })
    }

    /// Sends messages that change something, and waits for the acknowledgement of the last one, which must request it
    /// (NLM_F_ACK).
    ///
    /// # Errors
    /// When the kernel refuses the last message.
    pub fn execute(&mut self, request: &'static str, batch: &Batch) -> Result<(), Error> {
        self.send(batch)?;
        self.answers(request).map(drop)
    }

    /// Sends one request and returns the messages that answer it.
    pub(crate) fn request(
        &mut self,
        request: &'static str,
        kind: u16,
        fixed: &[u8],
        attrs: impl FnOnce(&mut Batch),
    ) -> Result<Vec<Answer>, Error> {
        let mut batch = Batch::default();
        batch.message(kind, NLM_F_REQUEST | NLM_F_ACK, self.next_seq(), fixed);
        attrs(&mut batch);
        self.send(&batch)?;
        self.answers(request).map(|(answers, _)| answers)
    }

    /// Reads a whole table as it was at one moment: repeats the dump if the table changed meanwhile.
    pub(crate) fn dump(
        &mut self,
        request: &'static str,
        kind: u16,
        fixed: &[u8],
    ) -> Result<Vec<Answer>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut batch = Batch::default();
            batch.message(kind, NLM_F_REQUEST | NLM_F_DUMP, self.next_seq(), fixed);
            self.send(&batch)?;
            if let (answers, false) = self.answers(request)? {
                return Ok(answers);
            }
        }
        Err(Error::Unsettled { request })
    }

    /// Reads a table that may be long: passes each message to `each`, and lets other tasks run between the pieces in
    /// which the kernel sends the table. Returns whether the table changed meanwhile.
    pub(crate) async fn dump_in_steps(
        &mut self,
        request: &'static str,
        kind: u16,
        fixed: &[u8],
        attrs: impl FnOnce(&mut Batch),
        mut each: impl FnMut(Message),
    ) -> Result<bool, Error> {
        let mut batch = Batch::default();
        batch.message(kind, NLM_F_REQUEST | NLM_F_DUMP, self.next_seq(), fixed);
        attrs(&mut batch);
        self.send(&batch)?;
        let mut progress = Progress::default();
        loop {
            self.receive_piece(&mut progress, &mut each)?;
            if progress.end.is_some() {
                return progress.result(request);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Starts to read a table a piece at a time. What changes meanwhile may be missed or seen twice.
    pub(crate) fn start_dump(
        mut self,
        request: &'static str,
        kind: u16,
        fixed: &[u8],
    ) -> Result<Dump, Error> {
        let mut batch = Batch::default();
        batch.message(kind, NLM_F_REQUEST | NLM_F_DUMP, self.next_seq(), fixed);
        self.send(&batch)?;
        Ok(Dump { channel: self, request, progress: Progress::default() })
    }

    /// A new sequence number, for the next message.
    pub fn next_seq(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        self.seq
    }

    pub(crate) fn send(&mut self, batch: &Batch) -> Result<(), Error> {
        self.socket.send(batch.bytes(), 0).map(drop).map_err(|source| self.socket_error(source))
    }

    /// Receives one datagram and passes its messages to `each`.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(Message)) -> Result<(), Error> {
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.socket_error(source)),
            }
        }
        for message in Messages(&self.buffer) {
            let truncated = |_| Error::Malformed { request: self.protocol };
            each(message.map_err(truncated)?);
        }
        Ok(())
    }

    /// Receives the whole answer to the last request. Returns whether the table changed while it was read.
    fn answers(&mut self, request: &'static str) -> Result<(Vec<Answer>, bool), Error> {
        let mut answers = Vec::new();
        let mut progress = Progress::default();
        while progress.end.is_none() {
            self.receive_piece(&mut progress, |m| {
                answers.push(Answer { kind: m.kind, payload: m.payload.to_vec() })
            })?;
        }
        progress.result(request).map(|interrupted| (answers, interrupted))
    }

    /// Receives one datagram of the answer to the last request.
    fn receive_piece(&mut self, progress: &mut Progress, mut each: impl FnMut(Message)) -> Result<(), Error> {
        let seq = self.seq;
        self.receive(|message| {
            // Skips the rest of an answer to an earlier request that was abandoned.
            if message.seq != seq {
                return;
            }
            progress.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                NLMSG_DONE | NLMSG_ERROR => progress.end = Some(errno(message.payload)),
                NLMSG_NOOP | NLMSG_OVERRUN => {}
                _ => each(message),
            }
        })
    }

    fn socket_error(&self, source: io::Error) -> Error {
        Error::Socket { protocol: self.protocol, source }
    }
}
