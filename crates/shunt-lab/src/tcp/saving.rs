//! The readings of a run.

use super::Measured;
use crate::{ResultsFile, Run};
use serde_json::{Map, Value, json};
use std::io;

impl Measured {
    /// Adds the readings of this run.
    pub(super) fn save(&self, file: &mut ResultsFile) -> io::Result<()> {
        let percent = |part: u64, all: u64| part as f64 / all.max(1) as f64 * 100.0;
        let sent = self.to_server.sent + self.to_client.sent;
        let lost = self.to_server.lost + self.to_client.lost;
        let again = self.to_server.retransmitted + self.to_client.retransmitted;
        let counts = json!({"opened": self.opened, "established": self.established, "failed": self.failed});
        let readings = [
            ("completed connections", "%", percent(self.completed, self.opened), counts),
            ("lost segments", "%", percent(lost, sent), json!({"lost": lost, "sent": sent})),
            ("retransmitted segments", "%", percent(again, sent), json!({"retransmitted": again})),
        ];
        for (what, unit, value, details) in readings {
            self.add(file, what, unit, value, details)?;
        }
        let bytes = self.to_server.bytes + self.to_client.bytes;
        let rate = bytes as f64 * 8.0 / self.seconds.max(1e-9);
        self.add(file, "payload", "bit/s", rate, json!({"bytes": bytes, "seconds": self.seconds}))?;
        for (what, times) in [("handshake", &self.handshake), ("exchange", &self.exchange)] {
            let Some(times) = times else {
                let why = format!("cannot tell: no {what} was completed");
                file.add_missing(&format!("{what} p50 {}", self.device), why);
                continue;
            };
            for (percentile, share) in [("p50", 0.5), ("p99", 0.99)] {
                let value = times.at(share) as f64 / 1e3;
                let details = json!({"times_ns": times});
                self.add(file, &format!("{what} {percentile}"), "us", value, details)?;
            }
        }
        Ok(())
    }

    fn add(
        &self,
        file: &mut ResultsFile,
        what: &str,
        unit: &str,
        value: f64,
        details: Value,
    ) -> io::Result<()> {
        let name = format!("{what} {}", self.device);
        let details = match details {
            Value::Object(details) => details,
            _ => Map::new(),
        };
        file.add(&name, unit, Run { value, at: None, details })?;
        self.doubts.iter().cloned().for_each(|doubt| file.add_doubt(&name, doubt));
        Ok(())
    }
}
