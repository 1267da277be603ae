//! The manual page of the daemon, shuntd(8).

use super::{SOURCE, see_also, words};
use clap::CommandFactory;
use clap_mangen::{
    Man,
    roff::{Roff, italic},
};
use shunt_api::{DaemonArguments, FILES};
use std::io;

pub(super) fn page() -> io::Result<String> {
    let mut page = Vec::new();
    Man::new(DaemonArguments::command()).section("8").source(SOURCE).render(&mut page)?;
    let mut more = Roff::new();
    let items = |page: &mut Roff, title: &str, items: &[(&str, &str)]| {
        page.control("SH", [title]);
        for (what, text) in items {
            page.control("TP", []).text([italic(*what)]).text(words(text));
        }
    };
    let signals = [
        (
            "SIGTERM, SIGINT",
            "The daemon detaches from its ports and exits. Connections continue through Linux.",
        ),
        (
            "SIGKILL",
            "The kernel removes the daemon's programs. The socket stays, and so do tc filters on kernels without TCX; --cleanup \
             and the next start of the instance remove them.",
        ),
    ];
    items(&mut more, "SIGNALS", &signals);
    items(&mut more, "FILES", &FILES);
    let variables = [
        ("SHUNT_RUNTIME_DIR", "The directory of sockets and logs, instead of /run/shunt."),
        (
            "SHUNT_STATE_DIR",
            "The directory of what instances keep across restarts, instead of /var/lib/shunt; if it is not set, \
             SHUNT_RUNTIME_DIR holds that, too.",
        ),
        (
            "NOTIFY_SOCKET, WATCHDOG_USEC",
            "Set by systemd. The daemon reports by sd_notify(3) when it is ready, that it is alive, and when it stops.",
        ),
    ];
    items(&mut more, "ENVIRONMENT", &variables);
    more.control("SH", ["EXIT STATUS"]).text(words(
        "0 after a stop on request. Otherwise one of the numbers listed in shunt(1); the last line on standard error names \
         the cause and what to do about it.",
    ));
    see_also(&mut more, "shunt(1), shunt-up(1), shunt.toml(5)");
    Ok(String::from_utf8_lossy(&page).into_owned() + &more.to_roff())
}
