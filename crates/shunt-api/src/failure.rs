//! Failures: a kind with a name and an exit code, and a message.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// A failure, with a message of one line for the operator: what is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// The kind of failure, for programs.
    pub code: FailureCode,
    /// The message, for people: one line, without a full stop at the end.
    #[serde(deserialize_with = "read_escaped")]
    pub message: String,
}

/// The body of an answer to a request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// The failure.
    pub error: Failure,
}

// The text is a `tt`, since derive macros do not see into a `literal`.
macro_rules! failure_codes {
    ($(#[doc = $doc:tt] $name:ident = $exit:literal, $text:tt;)*) => {
        /// The kinds of failure. Scripts rely on the names and exit codes, so they never change; new ones are added at
        /// the end.
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

            /// The name in JSON and in the documentation.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The meaning, in one or two sentences.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $doc.trim_ascii(),)*
                }
            }
        }
    };
}

failure_codes! {
    /// The command line is wrong, or a measurement could not be completed.
    Usage = 2, "usage";
    /// The command needs root.
    NotRoot = 10, "not-root";
    /// The kernel has no BTF (CONFIG_DEBUG_INFO_BTF).
    NoBtf = 11, "no-btf";
    /// The kernel lacks a feature that Shunt needs.
    KernelTooOld = 12, "kernel-too-old";
    /// The network device does not exist, or cannot be a port.
    PortMissing = 13, "port-missing";
    /// Another XDP program is attached to the port, or another program uses it.
    PortBusy = 14, "port-busy";
    /// The driver does not support native XDP.
    NoNativeXdp = 15, "no-native-xdp";
    /// Forwarding is turned off (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding).
    ForwardingOff = 16, "forwarding-off";
    /// Connection tracking is not available.
    NoConntrack = 17, "no-conntrack";
    /// The configuration file, or another file on the command line, is wrong.
    BadConfig = 18, "bad-config";
    /// A daemon of this instance is already running.
    AlreadyRunning = 19, "already-running";
    /// Another instance uses the port.
    PortTaken = 20, "port-taken";
    /// No daemon of this instance is running.
    NotRunning = 21, "not-running";
    /// The flow table is full.
    TableFull = 22, "table-full";
    /// The daemon does not understand the request.
    BadRequest = 23, "bad-request";
    /// The group of the configuration key `read_group` does not exist.
    GroupMissing = 24, "group-missing";
    /// Another program listens on the address for metrics, or for the agent.
    AddressInUse = 25, "address-in-use";
    /// Members of `read_group` may only read.
    ReadOnly = 26, "read-only";
    /// Neither conntrack nor Shunt knows such a connection.
    NoConnection = 27, "no-connection";
    /// The token is missing or wrong.
    Unauthorized = 28, "unauthorized";
    /// The agent on the DUT cannot be reached, or does not answer as expected.
    DutUnavailable = 29, "dut-unavailable";
    /// A check found a fault. The report says which.
    CheckFailed = 30, "check-failed";
    /// An unexpected error of Shunt or of the machine.
    Internal = 70, "internal";
    /// SIGHUP ended a measurement early. The results until then are shown and kept.
    HungUp = 129, "hung-up";
    /// SIGINT (Ctrl-C) ended a measurement early. The results until then are shown and kept.
    Interrupted = 130, "interrupted";
    /// SIGTERM ended a measurement early. The results until then are shown and kept.
    Terminated = 143, "terminated";
    /// `shunt verify` found packets that differ from what Linux sends. The report says which.
    Differs = 1, "differs";
    /// A change of the configuration needs a restart of the daemon; nothing was applied.
    NeedsRestart = 31, "needs-restart";
    /// The daemon is carrying out the same request of another client.
    Busy = 32, "busy";
}

impl FailureCode {
    /// The exit code of a process that fails with this kind of failure.
    pub const fn exit_code(self) -> u8 {
        self as u8
    }

    /// The kind of failure with this exit code; none if no kind has it.
    pub fn from_exit_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.exit_code() == code)
    }
}

impl Failure {
    /// A failure of this kind. Control characters in the message are escaped, because it may quote foreign text.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: escape_control_characters(&message.into()) }
    }
}

fn escape_control_characters(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() }).collect()
}

/// Escapes control characters in a message from another program.
fn read_escaped<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| escape_control_characters(&text))
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
    fn control_characters_of_a_quoted_text_are_escaped() {
        let failure = Failure::new(FailureCode::BadRequest, "no field `a\nb\u{1b}[2J`: \u{e4}");
        assert_eq!(failure.message, "no field `a\\nb\\u{1b}[2J`: \u{e4}");
    }

    #[test]
    fn control_characters_of_a_received_message_are_escaped() {
        let text = r#"{"code":"internal","message":"a\nb\u001b[2J"}"#;
        let failure: Failure = serde_json::from_str(text).unwrap();
        assert_eq!(failure.message, "a\\nb\\u{1b}[2J");
    }

    #[test]
    fn exit_codes_are_distinct_and_only_an_answer_is_1() {
        let codes: BTreeSet<u8> = FailureCode::ALL.iter().map(|kind| kind.exit_code()).collect();
        assert_eq!(codes.len(), FailureCode::ALL.len());
        assert!(!codes.contains(&0));
        assert_eq!(FailureCode::from_exit_code(1), Some(FailureCode::Differs));
        for kind in FailureCode::ALL {
            assert_eq!(FailureCode::from_exit_code(kind.exit_code()), Some(*kind));
        }
        assert_eq!(FailureCode::from_exit_code(9), None);
    }

    #[test]
    fn the_error_body_has_code_and_message() {
        let body = ErrorBody { error: Failure::new(FailureCode::PortMissing, "eth7: no such device") };
        let text = r#"{"error":{"code":"port-missing","message":"eth7: no such device"}}"#;
        assert_eq!(serde_json::to_string(&body).unwrap(), text);
        assert_eq!(serde_json::from_str::<ErrorBody>(text).unwrap(), body);
    }
}
