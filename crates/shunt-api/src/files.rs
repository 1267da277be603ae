//! The files of the daemon, for the manual pages.

use crate::Config;

/// Paths, and a sentence about each. NAME is the name of the instance.
pub const FILES: [(&str, &str); 7] = [
    (Config::PATH, "The configuration of the daemon."),
    ("/run/shunt/NAME.sock", "The control socket of an instance, which speaks HTTP and JSON."),
    ("/var/lib/shunt/NAME.off", "The rules of `shunt off`, which the daemon keeps across restarts."),
    ("/var/lib/shunt/NAME.history", "What happened in the last day, which the daemon keeps across restarts."),
    ("/var/lib/shunt/NAME.usage", "What each host has used, which the daemon keeps across restarts."),
    (
        "/var/lib/shunt/NAME.savings",
        "The costs of both paths and the packets of a week, which the daemon keeps across restarts.",
    ),
    ("/run/shunt/NAME.log", "The log of an instance whose daemon runs in the background."),
];
