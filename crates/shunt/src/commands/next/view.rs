//! The text of `shunt` without a command.

use crate::{
    command::instance_option,
    commands::status::savings,
    render::{Format, Text, units},
};
use serde::Serialize;
use shunt_api::Status;

/// Whether an instance runs.
#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(crate) enum Next {
    /// It runs.
    Running(Box<Status>),
    /// It does not run.
    Stopped {
        /// Its name.
        instance: String,
        /// The devices that it would use.
        ports: Vec<String>,
    },
}

impl Text for Next {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

fn describe(next: &Next) -> String {
    match next {
        Next::Running(status) => {
            let option = instance_option(&status.instance);
            let ports: Vec<String> =
                status.ports.iter().map(|port| format!("{} by {}", port.name, port.engine)).collect();
            let counted = match status.counted_s {
                Some(counted) if counted <= status.uptime_s => String::new(),
                Some(counted) => format!(", counting for {},", units::time(counted)),
                None => ", counting for an unknown time,".to_owned(),
            };
            let summary = format!(
                "running for {}{counted} on {}: {} of {} packets fast, {}\n",
                units::time(status.uptime_s),
                if ports.is_empty() { "no port".to_owned() } else { ports.join(", ") },
                units::percent(status.packets.fast_share),
                status.packets.fast + status.packets.slow + status.packets.dropped,
                units::count(status.flows.active + status.flows.static_, "flow"),
            );
            summary
                + &savings::lines(status.savings.as_ref(), false)
                + &commands(&[
                    (format!("shunt status{option}"), "the counters of each port, and what stays slow"),
                    (format!("shunt flows{option}"), "the connections on the fast path"),
                    (format!("shunt why{option} --dst ADDRESS"), "why a connection is fast or slow"),
                    (format!("shunt down{option}"), "stop, and leave nothing in the kernel"),
                ])
        }
        Next::Stopped { instance, ports } => {
            let option = instance_option(instance);
            let start = if ports.is_empty() {
                "start on all ports that forwarding uses".to_owned()
            } else {
                format!("start on all ports that forwarding uses: {}", ports.join(", "))
            };
            "not running\n".to_owned()
                + &commands(&[
                    (format!("shunt probe{option}"), "what this machine allows; attaches nothing"),
                    (format!("shunt up{option} --dry-run"), "what would be attached to which port, and why"),
                    (format!("shunt up{option}"), &start),
                    ("shunt --help".to_owned(), "all commands"),
                ])
        }
    }
}

fn commands(commands: &[(String, &str)]) -> String {
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    commands.iter().map(|(command, what)| format!("  {command:width$}  {what}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        commands::status::sample::status,
        golden::{TEXT, assert_golden},
    };

    #[test]
    fn texts_match_their_golden_files() {
        assert_golden("golden/next-running.txt", &Next::Running(Box::new(status())), TEXT);
        let restarted = shunt_api::Status { uptime_s: 3, ..status() };
        let said = crate::golden::show(&Next::Running(Box::new(restarted)), TEXT);
        assert!(said.starts_with("running for 3s, counting for 1d 2h 3m 4s, on "), "{said}");
        let stopped = |instance: &str, ports: &[&str]| {
            let ports = ports.iter().map(|name| (*name).to_owned()).collect();
            Next::Stopped { instance: instance.to_owned(), ports }
        };
        assert_golden("golden/next-stopped.txt", &stopped("default", &["lan0", "wan0"]), TEXT);
        assert_golden("golden/next-stopped-lab.txt", &stopped("lab", &[]), TEXT);
    }
}
