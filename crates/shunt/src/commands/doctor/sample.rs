//! The findings at a port of an i.MX6.

use super::{answer, view::Examination};
use crate::commands::link::sample::imx6;
use shunt_inspect::doctor::{CpuLoad, Load, QueueLoad, System};
use shunt_lab::load::StatShares;

pub(crate) fn examination() -> Examination {
    let registers = [("ENET_RCR", 0x05ee_0244), ("ENET_RSEM", 0), ("ENET_RSFL", 0)];
    let registers = registers.map(|(name, value)| (name.to_owned(), value)).into();
    let compatible = vec!["fsl,imx6q".to_owned()];
    let shares = StatShares { busy_percent: Some(61.0), softirq_percent: 55.0, ..StatShares::default() };
    let queue = QueueLoad {
        qdisc: "tbf".to_owned(),
        rate_bps: Some(4e8),
        sent_bps: 3.99e8,
        dropped_pps: 21.0,
        overlimits_per_s: 930.0,
        waiting: 17,
    };
    let load =
        Load { seconds: 1.0, cpus: vec![CpuLoad { cpu: 0, shares }], queues: vec![queue], ..Load::default() };
    let link = imx6();
    answer(vec![System { compatible, cpus: 4, link, registers, load: Some(load), ..System::default() }], None)
}
