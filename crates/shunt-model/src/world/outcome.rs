//! What a run adds up to.

use super::{Flow, World};
use crate::{
    prediction::{Part, Prediction},
    time::Ps,
};

impl World<'_> {
    pub(super) fn predict(self, events: u64) -> Prediction {
        let seconds = self.case.traffic.seconds;
        let span = self.now as f64;
        let sum = |of: fn(&Flow) -> u64| self.flows.iter().map(of).sum::<u64>();
        let (sent, received, lost) = (sum(|f| f.sent), sum(|f| f.received), sum(|f| f.lost));
        let bits = |bytes: u64| bytes as f64 * 8.0 / seconds;
        let most = |times: &[Ps]| times.iter().copied().max().unwrap_or(0) as f64 / span;
        let bus = if self.case.bus.shared {
            (self.busy.bus_in.iter().sum::<Ps>() + self.busy.bus_out.iter().sum::<Ps>()) as f64 / span
        } else {
            most(&self.busy.bus_in).max(most(&self.busy.bus_out))
        };
        let mut cores: Vec<f64> = self.busy.cores.iter().map(|busy| *busy as f64 / span).collect();
        cores[0] += self.case.cpu.base_load;
        cores.iter_mut().for_each(|load| *load = load.min(1.0));
        let cpu = cores.iter().copied().fold(0.0, f64::max);
        let mut busy = vec![
            (Part::Line, most(&self.busy.lines)),
            (Part::Bus, bus),
            (Part::Cpu, cpu),
            (Part::Program, self.busy.program as f64 / span),
            (Part::Engine, self.busy.engine as f64 / span),
        ];
        for (_, part) in &mut busy {
            *part = part.min(1.0);
        }
        busy.sort_by(|a, b| b.1.total_cmp(&a.1));
        Prediction {
            offered: bits(sent * u64::from(self.case.traffic.payload)),
            goodput: self.flows.iter().map(|flow| bits(flow.received_bytes)).collect(),
            sent,
            received,
            loss: if sent == 0 { 0.0 } else { lost as f64 / sent as f64 },
            cpu,
            cores,
            latency: self.in_the_box.times(),
            ping: self.pings.times(),
            pings_lost: self.pings_lost,
            drops: self.drops,
            pauses: self.pauses,
            pauses_received: self.pauses_received,
            busy,
            events,
        }
    }
}
