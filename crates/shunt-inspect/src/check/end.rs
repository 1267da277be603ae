//! An end of the cable: a port of this machine, or one that a partner on another machine lends.

use super::{
    Fault,
    lent::count,
    partner::{Answer, Bytes, Partner, PortCommand, Request},
    port::{LINK_TIME, Port, Shown, State, features},
};
use shunt_lab::net::{Frame, Tap, wait_for};
use std::{
    collections::VecDeque,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A port at one end of the cable.
#[derive(Debug, Clone)]
pub enum End {
    /// A port of this machine.
    Here(Port),
    /// A port that an agent on another machine lends.
    Far(Arc<dyn Partner>),
}

/// The settings of an end before a case.
pub(super) enum Before {
    Here(State),
    /// The partner keeps them. Whether the port was up.
    Far(bool),
}

impl Before {
    pub(super) fn is_up(&self) -> bool {
        match self {
            Self::Here(state) => state.is_up(),
            Self::Far(up) => *up,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(port) => port.fmt(f),
            Self::Far(partner) => partner.fmt(f),
        }
    }
}

impl End {
    /// The name of the port on its machine.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Here(port) => &port.name,
            Self::Far(partner) => partner.port(),
        }
    }

    /// Why the partner no longer answers.
    pub(super) fn lost(&self) -> Option<String> {
        match self {
            Self::Here(_) => None,
            Self::Far(partner) => partner.lost(),
        }
    }

    /// Runs a command about the port; returns what it printed.
    pub(super) fn run(&self, command: PortCommand) -> Result<String, String> {
        match self {
            Self::Here(port) => port.run(&command.line(&port.name)?),
            Self::Far(partner) => match call(&**partner, Request::Run(command))? {
                Answer::Printed(text) => Ok(text),
                _ => Err(unexpected(&**partner)),
            },
        }
    }

    pub(super) fn shown(&self) -> Result<Shown, String> {
        Shown::parse(self.name(), &self.run(PortCommand::Show)?)
    }

    /// Whether a feature is on, and whether it can be changed; None if the driver has no feature of this name.
    pub(super) fn feature(&self, name: &str) -> Option<(bool, bool)> {
        features(&self.run(PortCommand::Features).ok()?).get(name).copied()
    }

    /// Waits until the port has a carrier.
    pub(super) fn wait_for_link(&self) -> Result<(), String> {
        let ready = || match self.lost() {
            Some(why) => Some(Err(why)),
            None => self.shown().ok()?.has_link().then_some(Ok(())),
        };
        wait_for(LINK_TIME, ready)
            .unwrap_or_else(|| Err(format!("{self} has no link after {} s", LINK_TIME.as_secs())))
    }

    /// Saves the settings.
    pub(super) fn begin(&self) -> Result<Before, String> {
        Ok(match self {
            Self::Here(port) => Before::Here(port.state()?),
            Self::Far(partner) => match call(&**partner, Request::Begin)? {
                Answer::Begun(up) => Before::Far(up),
                _ => return Err(unexpected(&**partner)),
            },
        })
    }

    /// Restores the settings. Settings that still differ are the error.
    pub(super) fn restore(&self, before: &Before) -> Result<(), String> {
        match (self, before) {
            (Self::Here(port), Before::Here(state)) => port.restore(state),
            (Self::Far(partner), _) => call(&**partner, Request::End).map(drop),
            (Self::Here(_), Before::Far(_)) => Ok(()),
        }
    }

    /// A raw socket on the port, between [`End::begin`] and [`End::restore`].
    pub(super) fn socket(&self) -> Result<EndSocket, Fault> {
        Ok(match self {
            Self::Here(port) => EndSocket::Here(port.tap()?),
            Self::Far(partner) => EndSocket::Far(Arc::clone(partner), Mutex::default()),
        })
    }
}

fn call(partner: &dyn Partner, request: Request) -> Result<Answer, String> {
    match partner.call(request)? {
        Answer::Refused(why) => Err(why),
        answer => Ok(answer),
    }
}

fn unexpected(partner: &dyn Partner) -> String {
    format!("unexpected answer from {partner}")
}

/// A raw socket on an end.
pub(super) enum EndSocket {
    Here(Tap),
    /// The partner's socket, and the frames that were fetched from it.
    Far(Arc<dyn Partner>, Mutex<VecDeque<Frame>>),
}

impl EndSocket {
    fn call(partner: &dyn Partner, request: Request) -> io::Result<Answer> {
        call(partner, request).map_err(io::Error::other)
    }

    /// Sends frames, one directly after the other; the error is that of the frame with this number.
    pub(super) fn try_send_all(&self, frames: &[Vec<u8>]) -> Result<(), (usize, io::Error)> {
        match self {
            Self::Here(tap) => frames
                .iter()
                .enumerate()
                .try_for_each(|(number, frame)| tap.try_send(frame).map_err(|error| (number, error))),
            Self::Far(partner, _) => {
                let request = Request::Send(frames.iter().cloned().map(Bytes).collect());
                match partner.call(request) {
                    Ok(Answer::NotSent(number, why)) => {
                        Err((number.min(frames.len().saturating_sub(1)), io::Error::other(why)))
                    }
                    Ok(Answer::Refused(why)) | Err(why) => Err((0, io::Error::other(why))),
                    Ok(_) => Ok(()),
                }
            }
        }
    }

    pub(super) fn try_send(&self, frame: &[u8]) -> io::Result<()> {
        match self {
            Self::Here(tap) => tap.try_send(frame),
            Self::Far(..) => self.try_send_all(&[frame.to_vec()]).map_err(|(_, error)| error),
        }
    }

    /// Sends a frame behind a `struct virtio_net_hdr`.
    pub(super) fn try_send_described(&self, description: [u8; 10], frame: &[u8]) -> io::Result<()> {
        match self {
            Self::Here(tap) => tap.try_send_described(description, frame),
            Self::Far(partner, _) => {
                let request = Request::SendDescribed(description, Bytes(frame.to_vec()));
                Self::call(&**partner, request).map(drop)
            }
        }
    }

    /// The next frame, if one arrives within `timeout`. Frames of other senders have no bytes if the partner received
    /// them.
    pub(super) fn receive_within(&self, timeout: Duration) -> io::Result<Option<Frame>> {
        let (partner, fetched) = match self {
            Self::Here(tap) => return tap.receive_within(timeout),
            Self::Far(partner, fetched) => (partner, fetched),
        };
        let mut fetched = fetched.lock().unwrap_or_else(PoisonError::into_inner);
        if fetched.is_empty() {
            let wait = timeout.as_micros().div_ceil(1000) as u64;
            match Self::call(&**partner, Request::Receive(wait))? {
                Answer::Received(frames) => {
                    fetched.extend(frames.into_iter().map(|frame| frame.into_frame()))
                }
                _ => return Err(io::Error::other(unexpected(&**partner))),
            }
        }
        Ok(fetched.pop_front())
    }

    /// Counts frames with these bytes from the first one on, which is not counted.
    pub(super) fn count(&self, frame: &[u8], lasting: Duration) -> io::Result<(usize, Duration)> {
        let partner = match self {
            Self::Here(tap) => return count(tap, frame, lasting),
            Self::Far(partner, _) => partner,
        };
        let request = Request::Count(Bytes(frame.to_vec()), lasting.as_millis() as u64);
        match Self::call(&**partner, request)? {
            Answer::Counted(frames, ns) => Ok((frames, Duration::from_nanos(ns))),
            _ => Err(io::Error::other(unexpected(&**partner))),
        }
    }
}
