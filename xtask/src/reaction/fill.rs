//! Many learned flows beside the one that is watched.

use anyhow::ensure;
use shunt_bpf::traffic::Generator;
use shunt_testkit::{NetNs, Shuntd, Topology};

/// Flows per near address.
const LOWS: u16 = 1000;
/// Rounds over all flows until the fast path must have learned them.
const ROUNDS: usize = 40;

/// Sends packets of many flows.
pub struct Fill {
    generator: Generator,
    flows: u64,
}

impl Fill {
    /// So many flows from the LAN to the WAN. They go to ports from 6000 on.
    pub fn new(lab: &Topology, flows: u32) -> anyhow::Result<Self> {
        let (lan, wan) = (lab.lan(), lab.wan());
        let flows = lan.flows_to(wan.at(6000), LOWS, u16::try_from(flows / u32::from(LOWS))?);
        let ifindex = lan.ns.ifindex(lan.nic);
        let traffic = flows.traffic()?;
        let generator = lan.ns.within(|| Generator::new(&traffic, ifindex))?;
        Ok(Self { generator, flows: flows.count() })
    }

    /// Sends until the fast path has nearly all of them; without one, until conntrack has.
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
        ensure!(false, "of {} flows only {taken} are fast", self.flows);
        Ok(())
    }
}
