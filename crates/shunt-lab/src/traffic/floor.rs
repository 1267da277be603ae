//! Latency and highest rate of generator and receiver alone: the same traffic back to back over a plain veth.

use super::{
    Error, Floor, LEAD_NS, SendMethod, SendMethodChoice, TrafficSpec,
    figures::LatencyUs,
    station::Station,
    stream::{Frames, Stream},
};
use crate::net::NetNs;
use shunt_gen::Schedule;
use shunt_traffic::now_ns;
use shunt_wire::Mac;
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::atomic::AtomicBool,
    time::Duration,
};

const AT_RATE: Duration = Duration::from_millis(500);
const AT_MOST: Duration = Duration::from_millis(300);
/// Number of packets at low rates.
const PACKETS: u64 = 100;
/// The veth's MTU, larger than any frame.
const MTU: u32 = 9100;

pub(super) fn measure(
    spec: &TrafficSpec,
    schedule: &Schedule,
    method: SendMethod,
    stop: &AtomicBool,
) -> Result<Floor, Error> {
    let ns = NetNs::try_new("floor")?;
    ns.try_run(&format!(
        "ip link add f0 mtu {MTU} type veth peer name f1 mtu {MTU} && ip link set f0 up && ip link set f1 up"
    ))?;
    let station = |ifname: &str, last| -> Result<Station<'_>, Error> {
        Ok(Station {
            ns: Some(&ns),
            ifname: ifname.to_owned(),
            ifindex: ns.try_ifindex(ifname)?,
            mac: Mac([2, 0, 0, 0, 9, last]),
            next_hop: Mac([2, 0, 0, 0, 9, 3 - last]),
            routed: false,
            v4: Some(Ipv4Addr::new(198, 18, 9, last)),
            v6: Some(Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, last.into())),
        })
    };
    let (from, to) = (station("f0", 1)?, station("f1", 2)?);
    let mut stream =
        Stream::new(&from, &to, Frames::Made(spec.shape.clone()), SendMethodChoice::Only(method), false)?;
    let mut run = |pps, time, label| {
        let once = Schedule { pps, packets: None, duration: Some(time), ..*schedule };
        stream.run(&once, now_ns() + LEAD_NS, label, stop)
    };
    // The first run has cold caches, so only its rate is used.
    let most = run(None, AT_MOST, 3)?;
    let time = schedule
        .pps
        .map_or(AT_RATE, |pps| AT_RATE.max(Duration::from_secs_f64((PACKETS as f64 / pps).min(2.0))));
    let at_rate = run(schedule.pps, time, 4)?;
    Ok(Floor {
        latency_us: LatencyUs::from_histogram(&at_rate.latency).unwrap_or_default(),
        jitter_us: at_rate.figures.jitter_us,
        max_pps: most.figures.achieved_pps.min(most.figures.received as f64 / most.figures.seconds.max(1e-9)),
    })
}
