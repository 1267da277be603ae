//! A netlink socket for questions and their answers.

use crate::{
    Error,
    wire::{
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

/// What one recv can give. The kernel cuts dumps to what was read before, at most 32 KiB.
const BUFFER_BYTES: usize = 64 << 10;

const DUMP_ATTEMPTS: usize = 16;

/// The kernel answers within the call; this only keeps a kernel bug from hanging us.
const PATIENCE_SECONDS: i64 = 5;

/// A socket of one netlink protocol, for one request after the other.
pub struct Channel {
    protocol: &'static str,
    socket: Socket,
    seq: u32,
    heard: Vec<u8>,
}

/// One message of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub kind: u16,
    pub payload: Vec<u8>,
}

/// How far an answer has come.
#[derive(Default)]
struct SoFar {
    interrupted: bool,
    /// The last message was there; an error if it had one.
    end: Option<Option<i32>>,
}

impl SoFar {
    /// Whether the table changed while it was read.
    fn result(self, request: &'static str) -> Result<bool, Error> {
        match self.end.flatten() {
            Some(code) => Err(Error::Refused { request, source: io::Error::from_raw_os_error(code) }),
            None => Ok(self.interrupted),
        }
    }
}

impl Channel {
    /// Open a socket in the network namespace of the calling thread. `protocol` is for errors.
    ///
    /// # Errors
    /// When the kernel lacks the protocol, or the process may not use it.
    pub fn open(number: isize, protocol: &'static str) -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(number)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // An error then comes without a copy of the request.
            socket.set_cap_ack(true)?;
            setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(PATIENCE_SECONDS))?;
            Ok(socket)
        };
        let socket = open().map_err(|source| Error::Socket { protocol, source })?;
        Ok(Self { protocol, socket, seq: 0, heard: Vec::with_capacity(BUFFER_BYTES) })
    }

    /// Send messages that change something, and wait for the one with the last number, which must ask for an answer.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn tell(&mut self, request: &'static str, batch: &Batch) -> Result<(), Error> {
        self.send(batch)?;
        self.answers(request).map(drop)
    }

    /// Ask for one thing.
    pub(crate) fn ask(
        &mut self,
        request: &'static str,
        kind: u16,
        fixed: &[u8],
        attrs: impl FnOnce(&mut Batch),
    ) -> Result<Vec<Answer>, Error> {
        let mut batch = Batch::default();
        batch.message(kind, NLM_F_REQUEST | NLM_F_ACK, self.number(), fixed);
        attrs(&mut batch);
        self.send(&batch)?;
        self.answers(request).map(|(answers, _)| answers)
    }

    /// Ask for a whole table, as it was at one moment.
    pub(crate) fn dump(
        &mut self,
        request: &'static str,
        kind: u16,
        fixed: &[u8],
    ) -> Result<Vec<Answer>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut batch = Batch::default();
            batch.message(kind, NLM_F_REQUEST | NLM_F_DUMP, self.number(), fixed);
            self.send(&batch)?;
            if let (answers, false) = self.answers(request)? {
                return Ok(answers);
            }
        }
        Err(Error::Unsettled { request })
    }

    /// Ask for a table that may be long: hands over each message, and lets other tasks run between the pieces that the
    /// kernel gives it in. Whether the table changed meanwhile.
    pub(crate) async fn dump_in_steps(
        &mut self,
        request: &'static str,
        kind: u16,
        fixed: &[u8],
        attrs: impl FnOnce(&mut Batch),
        mut each: impl FnMut(Message),
    ) -> Result<bool, Error> {
        let mut batch = Batch::default();
        batch.message(kind, NLM_F_REQUEST | NLM_F_DUMP, self.number(), fixed);
        attrs(&mut batch);
        self.send(&batch)?;
        let mut so_far = SoFar::default();
        loop {
            self.piece(&mut so_far, &mut each)?;
            if so_far.end.is_some() {
                return so_far.result(request);
            }
            tokio::task::yield_now().await;
        }
    }

    /// The next sequence number, for a message that is about to be sent.
    pub fn number(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        self.seq
    }

    pub(crate) fn send(&mut self, batch: &Batch) -> Result<(), Error> {
        self.socket.send(batch.bytes(), 0).map(drop).map_err(|source| self.failed(source))
    }

    /// Hand over what one recv gives.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(Message)) -> Result<(), Error> {
        loop {
            self.heard.clear();
            match self.socket.recv(&mut self.heard, 0) {
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.failed(source)),
            }
        }
        for message in Messages(&self.heard) {
            let cut = |_| Error::Malformed { request: self.protocol };
            each(message.map_err(cut)?);
        }
        Ok(())
    }

    /// Everything that answers the last request, and whether the table changed while it was read.
    fn answers(&mut self, request: &'static str) -> Result<(Vec<Answer>, bool), Error> {
        let mut answers = Vec::new();
        let mut so_far = SoFar::default();
        while so_far.end.is_none() {
            self.piece(&mut so_far, |m| answers.push(Answer { kind: m.kind, payload: m.payload.to_vec() }))?;
        }
        so_far.result(request).map(|interrupted| (answers, interrupted))
    }

    /// What one recv gives of the answer to the last request.
    fn piece(&mut self, so_far: &mut SoFar, mut each: impl FnMut(Message)) -> Result<(), Error> {
        let seq = self.seq;
        self.receive(|message| {
            // What answers an earlier request, one that was given up, is not ours.
            if message.seq != seq {
                return;
            }
            so_far.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                NLMSG_DONE | NLMSG_ERROR => so_far.end = Some(errno(message.payload)),
                NLMSG_NOOP | NLMSG_OVERRUN => {}
                _ => each(message),
            }
        })
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Socket { protocol: self.protocol, source }
    }
}
