//! What can go wrong, by name and by exit code.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// One line for the operator: the thing, and the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// The kind, for programs.
    pub code: FailureCode,
    /// The line, for people: no newline, no final full stop.
    #[serde(deserialize_with = "read_in_line")]
    pub message: String,
}

/// The body of an answer that is not the wanted one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// What went wrong.
    pub error: Failure,
}

// The text is a `tt`, since derive macros do not see into a `literal`.
macro_rules! failure_codes {
    ($(#[doc = $doc:tt] $name:ident = $exit:literal, $text:tt;)*) => {
        /// The kinds of failure. Numbers and names are promised to scripts: append only.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum FailureCode {
            $(#[doc = $doc] #[serde(rename = $text)] $name = $exit,)*
        }

        impl FailureCode {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name in JSON and in the documentation.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $doc.trim_ascii(),)*
                }
            }
        }
    };
}

failure_codes! {
    /// What was typed makes no sense, or the answer could not be found out.
    Usage = 2, "usage";
    /// It needs root.
    NotRoot = 10, "not-root";
    /// The kernel has no BTF.
    NoBtf = 11, "no-btf";
    /// The kernel lacks something that is needed.
    KernelTooOld = 12, "kernel-too-old";
    /// There is no such network device, or it cannot be a port.
    PortMissing = 13, "port-missing";
    /// Another XDP program is on the port.
    PortBusy = 14, "port-busy";
    /// The driver has no native XDP.
    NoNativeXdp = 15, "no-native-xdp";
    /// Linux does not forward.
    ForwardingOff = 16, "forwarding-off";
    /// Connection tracking is not there.
    NoConntrack = 17, "no-conntrack";
    /// The configuration file, or another file that was given, is wrong.
    BadConfig = 18, "bad-config";
    /// This instance runs already.
    AlreadyRunning = 19, "already-running";
    /// Another instance has the port.
    PortTaken = 20, "port-taken";
    /// This instance does not run.
    NotRunning = 21, "not-running";
    /// The flow table is full.
    TableFull = 22, "table-full";
    /// The daemon was asked something that it does not understand.
    BadRequest = 23, "bad-request";
    /// The group that may read the control socket is not there.
    GroupMissing = 24, "group-missing";
    /// Another program listens where metrics are to be served.
    AddressInUse = 25, "address-in-use";
    /// Members of the reading group may only read.
    ReadOnly = 26, "read-only";
    /// Nobody knows of such a connection.
    NoConnection = 27, "no-connection";
    /// The token is missing or wrong.
    Unauthorized = 28, "unauthorized";
    /// The agent on the DUT is not there, or does not answer as it should.
    DutUnavailable = 29, "dut-unavailable";
    /// Shunt is wrong, or the machine is.
    Internal = 70, "internal";
    /// SIGHUP cut a measurement short. What was measured until then is shown and kept.
    HungUp = 129, "hung-up";
    /// SIGINT (Ctrl-C) did so.
    Interrupted = 130, "interrupted";
    /// SIGTERM did so.
    Terminated = 143, "terminated";
}

impl FailureCode {
    /// The exit code of a process that fails with it.
    pub const fn exit_code(self) -> u8 {
        self as u8
    }

    /// The kind that a process meant by its exit code.
    pub fn from_exit_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.exit_code() == code)
    }
}

impl Failure {
    /// A failure of this kind. Control characters are escaped: the message may quote what somebody else has written.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: in_line(&message.into()) }
    }
}

fn in_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() }).collect()
}

/// Whoever sent it need not be Shunt.
fn read_in_line<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| in_line(&text))
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_quoted_stays_in_the_line() {
        let failure = Failure::new(FailureCode::BadRequest, "no field `a\nb\u{1b}[2J`: \u{e4}");
        assert_eq!(failure.message, "no field `a\\nb\\u{1b}[2J`: \u{e4}");
    }

    #[test]
    fn what_another_machine_sends_stays_in_the_line() {
        let text = r#"{"code":"internal","message":"a\nb\u001b[2J"}"#;
        let failure: Failure = serde_json::from_str(text).unwrap();
        assert_eq!(failure.message, "a\\nb\\u{1b}[2J");
    }

    #[test]
    fn exit_codes_are_distinct_and_none_means_yes_or_no() {
        let codes: BTreeSet<u8> = FailureCode::ALL.iter().map(|kind| kind.exit_code()).collect();
        assert_eq!(codes.len(), FailureCode::ALL.len());
        assert!(!codes.contains(&0) && !codes.contains(&1));
        for kind in FailureCode::ALL {
            assert_eq!(FailureCode::from_exit_code(kind.exit_code()), Some(*kind));
        }
        assert_eq!(FailureCode::from_exit_code(9), None);
    }

    #[test]
    fn the_body_is_the_documented_json() {
        let body = ErrorBody { error: Failure::new(FailureCode::PortMissing, "eth7: no such device") };
        let text = r#"{"error":{"code":"port-missing","message":"eth7: no such device"}}"#;
        assert_eq!(serde_json::to_string(&body).unwrap(), text);
        assert_eq!(serde_json::from_str::<ErrorBody>(text).unwrap(), body);
    }
}
