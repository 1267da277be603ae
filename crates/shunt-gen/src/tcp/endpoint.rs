//! One end of a TCP connection (RFC 9293).

use super::{
    payload::Header,
    receiving::{Fit, Receiving, WINDOW, WINDOW_SCALE},
    sending::{Acknowledged, Piece, Sending},
};
use shunt_wire::Tcp;
use std::time::Duration;

const OPTION_MSS: u8 = 2;
const OPTION_SCALE: u8 = 3;
/// Largest scale of a window (RFC 7323).
const SCALE_MAX: u8 = 14;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Endpoint {
    state: State,
    sending: Sending,
    /// The peer's stream; None before its SYN.
    receiving: Option<Receiving>,
    /// The start of both streams; None for a server that has not received it.
    pub(super) header: Option<Header>,
    own_scale: u8,
    peer_scale: u8,
    /// Acknowledgements to send: one for each segment that was early or repeated, and one for every second other.
    owed: u32,
    /// Whether one segment in order waits for its acknowledgement.
    delayed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    SynSent,
    SynReceived,
    Open,
    Closed,
}

/// What a segment was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// A segment of the connection.
    Fine,
    /// A segment that does not fit the connection. It has no effect.
    Stray,
    /// The end of the connection by the peer or by the router.
    Reset,
    /// Bytes that were not sent at this place.
    Corrupted,
}

/// A segment to send.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) tcp: Tcp,
    pub(super) payload: Vec<u8>,
}

impl Endpoint {
    /// A client whose first segment is a SYN with this sequence number.
    pub(super) fn connect(first: u32, segment_bytes: u64, header: Header, now: Duration) -> Self {
        Self::new(State::SynSent, Sending::new(first, segment_bytes, now), Some(header))
    }

    /// A server that answers a SYN. None if the segment is not one.
    pub(super) fn accept(syn: &Tcp, first: u32, segment_bytes: u64, now: Duration) -> Option<Self> {
        (syn.flags & (Tcp::SYN | Tcp::ACK | Tcp::RST | Tcp::FIN) == Tcp::SYN).then(|| {
            let mut own = Self::new(State::SynReceived, Sending::new(first, segment_bytes, now), None);
            own.take_syn(syn);
            own
        })
    }

    fn new(state: State, sending: Sending, header: Option<Header>) -> Self {
        Self {
            state,
            sending,
            receiving: None,
            header,
            own_scale: WINDOW_SCALE,
            peer_scale: 0,
            owed: 0,
            delayed: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(super) fn is_opening(&self) -> bool {
        matches!(self.state, State::SynSent | State::SynReceived)
    }

    /// Whether both streams are complete and acknowledged.
    pub(super) fn is_finished(&self) -> bool {
        self.sending.is_finished() && self.peer_has_closed()
    }

    /// Whether this end has closed its stream.
    pub(super) fn is_closing(&self) -> bool {
        self.sending.is_closing()
    }

    pub(super) fn peer_has_closed(&self) -> bool {
        self.receiving.as_ref().is_some_and(Receiving::is_finished)
    }

    /// Number of bytes that have arrived in order.
    pub(super) fn received(&self) -> u64 {
        self.receiving.as_ref().map_or(0, Receiving::bytes)
    }

    pub(super) fn retransmitted(&self) -> u64 {
        self.sending.retransmitted
    }

    pub(super) fn write(&mut self, bytes: u64, now: Duration) {
        self.sending.write(bytes, now);
    }

    pub(super) fn close(&mut self, now: Duration) {
        self.sending.close(now);
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.sending.due().filter(|_| self.state != State::Closed)
    }

    /// As [`Sending::on_time`].
    pub(super) fn on_time(&mut self, now: Duration, patience: Duration) -> bool {
        self.state != State::Closed && self.sending.on_time(now, patience)
    }

    /// Ends the connection without a word.
    pub(super) fn abandon(&mut self) {
        self.state = State::Closed;
    }

    /// The segment that resets the connection.
    pub(super) fn reset(&self) -> Segment {
        let acknowledges = if self.receiving.is_some() { Tcp::ACK } else { 0 };
        self.segment(self.sending.acknowledged_sequence(), Tcp::RST | acknowledges, Vec::new(), Vec::new())
    }

    pub(super) fn hear(&mut self, tcp: &Tcp, payload: &[u8], now: Duration) -> Heard {
        match self.state {
            State::Closed => Heard::Stray,
            State::SynSent => self.hear_answer(tcp, now),
            State::SynReceived | State::Open => self.hear_open(tcp, payload, now),
        }
    }

    fn hear_answer(&mut self, tcp: &Tcp, now: Duration) -> Heard {
        let answers = tcp.flags & Tcp::ACK != 0 && tcp.acknowledgement == self.sending.sequence(1);
        match tcp.flags & (Tcp::SYN | Tcp::RST | Tcp::FIN) {
            Tcp::RST if answers => Heard::Reset,
            Tcp::SYN if answers => {
                self.take_syn(tcp);
                self.sending.acknowledge(tcp.acknowledgement, tcp.window.into(), false, now);
                (self.state, self.owed) = (State::Open, 1);
                Heard::Fine
            }
            _ => Heard::Stray,
        }
    }

    /// Reads the options of the peer's SYN.
    fn take_syn(&mut self, syn: &Tcp) {
        self.receiving = Some(Receiving::from_syn(syn.sequence));
        let mut options = &syn.options[..];
        let mut scale = None;
        while let [kind, rest @ ..] = options {
            // An option of one byte: the end of the list, or padding.
            if *kind <= 1 {
                options = if *kind == 0 { &[] } else { rest };
                continue;
            }
            let Some(bytes) = rest.first().and_then(|length| options.get(2..usize::from(*length))) else {
                break;
            };
            match (*kind, bytes) {
                (OPTION_MSS, [high, low]) => {
                    let most = u64::from(u16::from_be_bytes([*high, *low])).max(1);
                    self.sending.segment_bytes = self.sending.segment_bytes.min(most);
                }
                (OPTION_SCALE, [shift]) => scale = Some((*shift).min(SCALE_MAX)),
                _ => {}
            }
            options = &options[2 + bytes.len()..];
        }
        // Windows are scaled only if both ends say so.
        (self.own_scale, self.peer_scale) = scale.map_or((0, 0), |scale| (WINDOW_SCALE, scale));
    }

    fn hear_open(&mut self, tcp: &Tcp, payload: &[u8], now: Duration) -> Heard {
        let Some(receiving) = &mut self.receiving else { return Heard::Stray };
        let place = receiving.place_of(tcp.sequence);
        if tcp.flags & Tcp::RST != 0 {
            // Only the exact number ends a connection (RFC 5961).
            return if tcp.sequence == receiving.acknowledgement() { Heard::Reset } else { Heard::Stray };
        }
        if tcp.flags & Tcp::SYN != 0 {
            if place != Some(0) {
                return Heard::Stray;
            }
            // The peer repeats its SYN: the answer to it was lost.
            if self.state == State::SynReceived {
                self.sending.repeat_syn()
            } else {
                self.owed += 1
            }
            return Heard::Fine;
        }
        let Some(place) = place.filter(|place| *place > 0 && tcp.flags & Tcp::ACK != 0) else {
            self.owed += 1;
            return Heard::Stray;
        };
        if !payload.is_empty() {
            if place == 1 && self.header.is_none() {
                self.header = Header::parse(payload);
            }
            if self.header.is_some_and(|header| !header.is_at(place - 1, payload)) {
                return Heard::Corrupted;
            }
        }
        let fin = tcp.flags & Tcp::FIN != 0;
        let (bare, window) = (payload.is_empty() && !fin, u64::from(tcp.window) << self.peer_scale);
        if self.sending.acknowledge(tcp.acknowledgement, window, bare, now) == Acknowledged::Unsent {
            self.owed += 1;
            return Heard::Stray;
        }
        self.state = State::Open;
        match receiving.add(place, payload.len() as u64, fin) {
            Fit::Empty => {}
            Fit::Next if fin || self.delayed => (self.owed, self.delayed) = (self.owed + 1, false),
            Fit::Next => self.delayed = true,
            Fit::Gap | Fit::Repeated => self.owed += 1,
        }
        Heard::Fine
    }

    /// Passes on all segments that are to be sent now, acknowledgements included.
    pub(super) fn transmit(&mut self, now: Duration, send: &mut dyn FnMut(Segment)) {
        if self.state == State::Closed {
            return;
        }
        let mut acknowledgements = self.owed + u32::from(self.delayed);
        (self.owed, self.delayed) = (0, false);
        while let Some(piece) = self.sending.next_piece(now) {
            acknowledgements = acknowledgements.saturating_sub(1);
            send(self.carrying(piece));
        }
        let sequence = self.sending.next_sequence();
        (0..acknowledgements).for_each(|_| send(self.segment(sequence, Tcp::ACK, Vec::new(), Vec::new())));
    }

    fn carrying(&self, piece: Piece) -> Segment {
        let mut flags = if piece.fin { Tcp::FIN } else { 0 };
        let mut options = Vec::new();
        if piece.syn {
            flags |= Tcp::SYN;
            let [high, low] = (self.sending.segment_bytes as u16).to_be_bytes();
            options.extend([OPTION_MSS, 4, high, low]);
            if self.own_scale > 0 {
                options.extend([1, OPTION_SCALE, 3, WINDOW_SCALE]);
            }
        }
        if self.receiving.is_some() {
            flags |= Tcp::ACK;
        }
        if piece.bytes > 0 {
            flags |= Tcp::PSH;
        }
        let payload = match self.header {
            Some(header) if piece.bytes > 0 => header.bytes_at(piece.place - 1, piece.bytes as usize),
            _ => Vec::new(),
        };
        self.segment(self.sending.sequence(piece.place), flags, options, payload)
    }

    fn segment(&self, sequence: u32, flags: u8, options: Vec<u8>, payload: Vec<u8>) -> Segment {
        // The window of a SYN is not scaled.
        let scale = if flags & Tcp::SYN != 0 { 0 } else { self.own_scale };
        let tcp = Tcp {
            source: 0,
            destination: 0,
            sequence,
            acknowledgement: self.receiving.as_ref().map_or(0, Receiving::acknowledgement),
            flags,
            window: (WINDOW >> scale).min(u16::MAX.into()) as u16,
            urgent: 0,
            options,
            checksum: shunt_wire::Checksum::Good,
        };
        Segment { tcp, payload }
    }
}
