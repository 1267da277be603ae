//! Turns counters into rates.

use super::{Link, interrupts};
use serde::{Deserialize, Serialize};
use shunt_lab::counters::{Device, Snapshot, changes};
use std::{collections::BTreeMap, path::Path, time::Instant};

/// Counters at the beginning of an interval.
#[derive(Debug)]
pub struct Interval {
    port: String,
    began: Instant,
    counters: Snapshot,
    irqs: BTreeMap<u32, u64>,
}

/// The rate of a counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The port, a CPU such as `cpu0`, or an interrupt such as `irq41`.
    pub device: String,
    /// The counter's name.
    pub counter: String,
    /// Increase during the interval.
    pub rise: u64,
    /// Increase per second.
    pub per_second: f64,
    /// Whether it counts lost or delayed packets.
    pub trouble: bool,
}

impl Interval {
    /// Begins an interval.
    pub fn begin(link: &Link) -> Self {
        let port = link.nic.name.clone();
        let irqs = link.irqs.iter().map(|irq| (irq.number, 0)).collect();
        let mut interval = Self { counters: Snapshot::default(), irqs, began: Instant::now(), port };
        interval.irqs = interval.interrupts();
        interval.counters = Snapshot::read(&[Device::here(&interval.port)]);
        interval
    }

    /// Ends the interval: returns its length in seconds and the rates of the counters that changed. Begins the next
    /// interval.
    pub fn end(&mut self) -> (f64, Vec<Rate>) {
        let (now, irqs) = (Snapshot::read(&[Device::here(&self.port)]), self.interrupts());
        let seconds = self.began.elapsed().as_secs_f64();
        self.began = Instant::now();
        let before = std::mem::replace(&mut self.counters, now.clone());
        let changed = changes(&[before, now]).into_iter().flatten().filter(|change| !change.reset);
        let mut rates: Vec<Rate> = changed
            .map(|change| Rate {
                per_second: change.rise as f64 / seconds,
                device: change.device,
                counter: change.counter,
                rise: change.rise,
                trouble: change.trouble,
            })
            .collect();
        for (number, total) in &irqs {
            let rise = total.saturating_sub(self.irqs.get(number).copied().unwrap_or(0));
            if rise > 0 {
                let device = format!("irq{number}");
                let per_second = rise as f64 / seconds;
                rates.push(Rate {
                    device,
                    counter: "interrupts".to_owned(),
                    rise,
                    per_second,
                    trouble: false,
                });
            }
        }
        self.irqs = irqs;
        (seconds, rates)
    }

    fn interrupts(&self) -> BTreeMap<u32, u64> {
        let all = interrupts(Path::new("/")).into_iter();
        all.filter(|irq| self.irqs.contains_key(&irq.number)).map(|irq| (irq.number, irq.total())).collect()
    }
}
