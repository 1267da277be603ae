//! The findings at a port of an i.MX6.

use super::view::{Diagnosis, Found, Gain};
use crate::commands::link::sample::imx6;
use shunt_inspect::doctor::{Finding, System, diagnose};

/// A finding; pause frames have a prediction of their gain.
fn found(finding: Finding) -> Found {
    let gain = (finding.rule == "partner-pauses-alone").then(|| Gain {
        case: "i.MX6 ENET, Linux 3.0.35".to_owned(),
        offered: "957 Mbit/s of UDP, received".to_owned(),
        now_mbps: 294.0,
        fixed_mbps: 455.2,
        now_loss_percent: 66.7,
        fixed_loss_percent: 0.0,
    });
    Found { finding, gain }
}

pub(crate) fn diagnoses() -> Vec<Diagnosis> {
    let link = imx6();
    let lacking = link.lacking.clone();
    let system = System { compatible: vec!["fsl,imx6q".to_owned()], cpus: 4, link, ..System::default() };
    vec![Diagnosis {
        port: "eth0".to_owned(),
        findings: diagnose(&system).into_iter().map(found).collect(),
        load: None,
        lacking,
    }]
}
