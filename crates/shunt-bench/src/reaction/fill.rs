//! Many learned flows beside the measured one.

use anyhow::ensure;
use shunt_testkit::{NetNs, Shuntd, Topology};
use shunt_traffic::Generator;

/// Flows per near address.
const LOWS: u16 = 1000;
/// Number of rounds over all flows after which the fast path must have learned them.
const ROUNDS: usize = 40;

/// A generator of packets of many flows.
pub struct Fill {
    generator: Generator,
    flows: u64,
}

impl Fill {
    /// Flows from the LAN to the WAN, to ports from 6000 on.
    pub fn new(lab: &Topology, flows: u32) -> anyhow::Result<Self> {
        let (lan, wan) = (lab.lan(), lab.wan());
        let flows = lan.flows_to(wan.at(6000), LOWS, u16::try_from(flows / u32::from(LOWS))?);
        let ifindex = lan.ns.ifindex(lan.nic);
        let traffic = flows.traffic()?;
        let generator = lan.ns.within(|| Generator::new(&traffic, ifindex))?;
        Ok(Self { generator, flows: flows.count() })
    }

    /// Sends until nearly all flows are on the fast path; without Shunt, one round makes conntrack entries.
    pub fn teach(&mut self, lan: &NetNs, shuntd: Option<&Shuntd>) -> anyhow::Result<()> {
        let mut taken = 0;
        for _ in 0..ROUNDS {
            let before = shuntd.map(|shuntd| shuntd.status().packets.fast);
            let (generator, flows) = (&mut self.generator, self.flows);
            lan.within(|| generator.run(flows))?;
            let Some((shuntd, before)) = shuntd.zip(before) else { return Ok(()) };
            taken = shuntd.status().packets.fast - before;
            if taken * 100 >= flows * 98 {
                return Ok(());
            }
        }
        ensure!(false, "only {taken} of {} flows are on the fast path", self.flows);
        Ok(())
    }
}
