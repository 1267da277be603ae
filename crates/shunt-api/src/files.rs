//! What is where, as the manual pages tell it.

use crate::Config;

/// Files of the daemon, and what each is.
pub const FILES: [(&str, &str); 3] = [
    (Config::PATH, "The configuration of the daemon."),
    ("/run/shunt/NAME.sock", "The control socket of an instance: HTTP and JSON."),
    ("/run/shunt/NAME.log", "What a daemon in the background has to say."),
];
