//! The partner's side of a check: a port that an agent lends, to one check at a time.

use super::{
    Fault,
    partner::{Answer, ArrivedFrame, Bytes, Call, Request, is_of_check},
    port::{Port, State},
};
use shunt_lab::net::Tap;
use std::{
    io,
    net::IpAddr,
    sync::{Mutex, PoisonError, TryLockError},
    time::{Duration, Instant},
};

/// A check that has sent no request for this long has lost the port. Longer than a check tries to negotiate modes.
pub const LEASE: Duration = Duration::from_secs(120);
/// The longest time that a request waits for a frame.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The longest time for which frames are counted.
const COUNT_MAX: Duration = Duration::from_secs(5);
/// Bytes of frames in one answer, or as many as one more frame makes them.
const ANSWER_BYTES: usize = 1 << 20;
/// Frames of other senders in one answer.
const FRAMES_MAX: usize = 16_384;

/// A port that is lent to checks.
#[derive(Debug)]
pub struct LentPort {
    port: Port,
    lease: Duration,
    state: Mutex<Lending>,
}

#[derive(Debug)]
enum Lending {
    Free,
    To(Box<Borrower>),
    /// The agent ends.
    Closed,
}

/// The check that has the port for a case.
#[derive(Debug)]
struct Borrower {
    check: u64,
    tap: Tap,
    before: State,
    last: Instant,
}

impl LentPort {
    /// A port of this process's network namespace. A check that has sent no request for `lease` loses the port.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn new(name: &str, lease: Duration) -> Result<Self, String> {
        let port = Port { netns: None, name: name.to_owned() };
        port.shown()?;
        Ok(Self { port, lease, state: Mutex::new(Lending::Free) })
    }

    /// The name of the port.
    pub fn name(&self) -> &str {
        &self.port.name
    }

    /// Whether the port has this address.
    pub fn has_address(&self, address: IpAddr) -> bool {
        let shown = self.port.run(&format!("ip -oneline address show dev {}", self.port.name));
        shown.is_ok_and(|text| text.contains(&format!(" {address}/")))
    }

    /// Carries out a request of a check.
    ///
    /// # Errors
    /// If the check does not have the port.
    pub fn answer(&self, call: Call) -> Result<Answer, String> {
        let Call { check, port, request } = call;
        if port != self.port.name {
            return Err(format!("it lends {}, not {port}", self.port));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *state, request) {
            (Lending::Closed, _) => Err("it is ending".to_owned()),
            (Lending::To(borrower), Request::Begin) if borrower.check != check => {
                Ok(Answer::Refused(format!("another check uses {} there", self.port)))
            }
            (Lending::Free | Lending::To(_), Request::Begin) => {
                // The answer to the end of the case before was lost.
                if let Err(why) = self.take_back(&mut state) {
                    return Ok(Answer::Refused(why));
                }
                Ok(match self.borrow(check) {
                    Ok(borrower) => {
                        let up = borrower.before.is_up();
                        *state = Lending::To(Box::new(borrower));
                        Answer::Begun(up)
                    }
                    Err(why) => Answer::Refused(why),
                })
            }
            (Lending::To(borrower), Request::End) if borrower.check == check => {
                Ok(self.take_back(&mut state).map_or_else(Answer::Refused, |()| Answer::Done))
            }
            (Lending::To(borrower), request) if borrower.check == check => {
                let answer = self.carry_out(&borrower.tap, request);
                borrower.last = Instant::now();
                Ok(answer.unwrap_or_else(Answer::Refused))
            }
            _ => Err(format!(
                "it no longer lends {} to this check: no request came for {} s",
                self.port,
                self.lease.as_secs()
            )),
        }
    }

    /// Restores the settings of a check that has sent no request for too long.
    ///
    /// # Errors
    /// If a setting cannot be restored.
    pub fn expire(&self) -> Result<(), String> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A request is being carried out.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        match &*state {
            Lending::To(borrower) if borrower.last.elapsed() >= self.lease => self.take_back(&mut state),
            _ => Ok(()),
        }
    }

    /// Restores the settings, and lends the port no more.
    ///
    /// # Errors
    /// If a setting cannot be restored.
    pub fn close(&self) -> Result<(), String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let restored = self.take_back(&mut state);
        *state = Lending::Closed;
        restored
    }

    fn borrow(&self, check: u64) -> Result<Borrower, String> {
        let before = self.port.state()?;
        let tap = self.port.tap().map_err(Fault::into_text)?;
        Ok(Borrower { check, tap, before, last: Instant::now() })
    }

    fn take_back(&self, state: &mut Lending) -> Result<(), String> {
        match std::mem::replace(state, Lending::Free) {
            Lending::To(borrower) => self.port.restore(&borrower.before),
            Lending::Free => Ok(()),
            Lending::Closed => {
                *state = Lending::Closed;
                Ok(())
            }
        }
    }

    fn carry_out(&self, tap: &Tap, request: Request) -> Result<Answer, String> {
        let text = |error: io::Error| error.to_string();
        Ok(match request {
            Request::Run(command) => Answer::Printed(self.port.run(&command.line(&self.port.name)?)?),
            Request::Send(frames) => {
                for Bytes(frame) in &frames {
                    allowed(frame)?;
                }
                let sent = frames.iter().enumerate().try_for_each(|(number, Bytes(frame))| {
                    tap.try_send(frame).map_err(|error| Answer::NotSent(number, error.to_string()))
                });
                sent.err().unwrap_or(Answer::Done)
            }
            Request::SendDescribed(description, Bytes(frame)) => {
                allowed(&frame)?;
                tap.try_send_described(description, &frame).map_err(text)?;
                Answer::Done
            }
            Request::Receive(milliseconds) => {
                let wait = Duration::from_millis(milliseconds).min(WAIT_MAX);
                Answer::Received(received(tap, wait).map_err(text)?)
            }
            Request::Count(Bytes(frame), milliseconds) => {
                let (frames, time) =
                    count(tap, &frame, Duration::from_millis(milliseconds).min(COUNT_MAX)).map_err(text)?;
                Answer::Counted(frames, time.as_nanos() as u64)
            }
            Request::Begin | Request::End => Answer::Done,
        })
    }
}

fn allowed(frame: &[u8]) -> Result<(), String> {
    if is_of_check(frame) { Ok(()) } else { Err("not a frame of a check".to_owned()) }
}

/// Waits for a frame, and takes all that have arrived.
fn received(tap: &Tap, wait: Duration) -> io::Result<Vec<ArrivedFrame>> {
    let (mut frames, mut bytes) = (Vec::new(), 0);
    let mut left = wait;
    while bytes < ANSWER_BYTES && frames.len() < FRAMES_MAX {
        let Some(frame) = tap.receive_within(left)? else { break };
        left = Duration::ZERO;
        bytes += frame.bytes.len();
        frames.push(ArrivedFrame::from_frame(frame));
    }
    Ok(frames)
}

/// Counts frames with these bytes from the first one on, which is not counted.
pub(super) fn count(tap: &Tap, expected: &[u8], lasting: Duration) -> io::Result<(usize, Duration)> {
    let deadline = Instant::now() + WAIT_MAX;
    let (mut first, mut counted) = (None::<Instant>, (0, Duration::ZERO));
    loop {
        let left = first.map_or(deadline, |first| first + lasting).saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(counted);
        }
        let Some(frame) = tap.receive_within(left)? else { return Ok(counted) };
        match first {
            _ if frame.bytes != expected => {}
            None => first = Some(Instant::now()),
            Some(first) => counted = (counted.0 + 1, first.elapsed()),
        }
    }
}
