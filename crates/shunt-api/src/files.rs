//! The files of the daemon, for the manual pages.

use crate::Config;

/// Paths, and a sentence about each. NAME is the name of the instance.
pub const FILES: [(&str, &str); 3] = [
    (Config::PATH, "The configuration of the daemon."),
    ("/run/shunt/NAME.sock", "The control socket of an instance, which speaks HTTP and JSON."),
    ("/run/shunt/NAME.log", "The log of an instance whose daemon runs in the background."),
];
