//! Traffic through one place that stays set up between runs.

use super::{
    Error, LEAD_NS, Wanted,
    figures::Directed,
    floor,
    lane::{Frames, Lane},
    neighbour::Responder,
    record::{Recorded, Recording},
    require_root,
    station::{Place, Station},
};
use crate::{
    Limit, Nic,
    net::{NetNs, Segment},
    sweep::counters::Device,
};
use shunt_gen::{Round, Schedule, Shape, Sizes};
use shunt_wire::line::LinkSpeed;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Runs have labels, so that a late frame of one does not count for the next.
const LABELS: u8 = 0x3f;

/// Lanes that are ready.
pub struct Session<'n> {
    near: Station<'n>,
    far: Station<'n>,
    lanes: Vec<Lane<'n>>,
    sizes: Sizes,
    wanted: &'n Wanted,
    router: Option<&'n NetNs>,
    nics: Vec<Nic>,
    /// Of the slower end.
    speed: Option<LinkSpeed>,
    stop: &'n AtomicBool,
    label: u8,
}

/// Sets up, works, and takes down what was set up.
///
/// # Errors
/// When it cannot be as asked, or the machine refuses; or those of the work.
pub fn session<R, E: From<Error>>(
    wanted: &Wanted,
    place: &Place,
    stop: &AtomicBool,
    work: impl FnOnce(&mut Session<'_>) -> Result<R, E>,
) -> Result<R, E> {
    require_root()?;
    let network = place.network(wanted)?;
    let (near, far) = network.stations(wanted)?;
    let round =
        wanted.replay.as_ref().map(|replay| replay.round(wanted, place.speed(wanted.speed))).transpose()?;
    let responders = [(&near, wanted.shape.source), (&far, wanted.shape.destination)];
    let responders = responders.map(|(station, addresses)| Responder::of(station, addresses));
    let responders: Vec<Responder> =
        responders.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
    let lanes = lanes(&near, &far, &wanted.shape, wanted, round)?;
    let nics = [&near, &far].map(|station| station.within(|| Nic::of(&station.ifname))).to_vec();
    let speed = place.line_speed(wanted.speed, &nics);
    let mut session = Session {
        near,
        far,
        lanes,
        sizes: wanted.shape.sizes.clone(),
        wanted,
        router: network.router(),
        nics,
        speed,
        stop,
        label: 0,
    };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        responders.iter().for_each(|responder| {
            scope.spawn(|| responder.serve(&over));
        });
        work(&mut session)
    })
}

/// Ends what waits for it, however it is left.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn lanes<'n>(
    near: &Station<'n>,
    far: &Station<'n>,
    shape: &Shape,
    wanted: &Wanted,
    round: Option<Round>,
) -> Result<Vec<Lane<'n>>, Error> {
    if wanted.answered {
        return Ok(vec![Lane::answered(near, far, shape.clone(), wanted.means)?]);
    }
    let hand_on = wanted.pcap_out.is_some();
    let there = match wanted.replay.as_ref().zip(round) {
        Some((replay, round)) => Frames::Captured { replay, round },
        None => Frames::Made(shape.clone()),
    };
    let mut lanes = vec![Lane::new(near, far, there, wanted.means, hand_on)?];
    if wanted.both {
        lanes.push(Lane::new(far, near, Frames::Made(shape.clone().reversed()), wanted.means, false)?);
    }
    Ok(lanes)
}

impl<'n> Session<'n> {
    /// Sends in all directions at once, and waits for what is under way.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn run(&mut self, schedule: &Schedule) -> Result<Vec<Directed>, Error> {
        let mut ran = self.once(schedule)?;
        // A sender that was held up from the beginning to the end has measured nothing.
        if ran.iter().any(|one| one.figures.sent == 0) && !self.stop.load(Ordering::Relaxed) {
            ran = self.once(schedule)?;
        }
        Ok(ran)
    }

    fn once(&mut self, schedule: &Schedule) -> Result<Vec<Directed>, Error> {
        let start_ns = shunt_bpf::traffic::now_ns() + LEAD_NS;
        self.label = self.label % LABELS + 1;
        let (label, stop, limit) = (self.label, self.stop, self.limit());
        let ran: Result<Vec<Directed>, Error> = thread::scope(|scope| {
            let threads: Vec<_> = self
                .lanes
                .iter_mut()
                .map(|lane| scope.spawn(move || lane.run(schedule, start_ns, label, stop)))
                .collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut ran = ran?;
        if let Some(limit) = limit {
            ran.iter_mut().for_each(|one| one.set_limit(limit.clone()));
        }
        Ok(ran)
    }

    /// Of the slower of the two lines; none where nobody knows it.
    pub fn line_speed(&self) -> Option<LinkSpeed> {
        self.speed
    }

    /// What the line carries of these frames at most, in one direction; none where nobody knows its speed.
    pub fn limit(&self) -> Option<Limit> {
        let speed = self.speed?;
        Some(match &self.wanted.replay {
            None => Limit::of_line(speed, &self.sizes, 1),
            Some(replay) => {
                let mean = replay.mean_bytes();
                let of = format!("{speed}bit/s, frames of {mean:.0} bytes in the mean");
                Limit { value: speed.frames_per_second(mean), of }
            }
        })
    }

    /// As [`Session::run`], and keeps what comes to the second port.
    pub(super) fn record(
        &mut self,
        schedule: &Schedule,
        recording: Recording<'_>,
    ) -> Result<(Vec<Directed>, Recorded), Error> {
        let handed = recording.listen(&self.lanes[0])?;
        handed.during(|| self.run(schedule))
    }

    /// From now on frames have these sizes. None may be larger than those that it was set up for.
    ///
    /// # Errors
    /// When the headers do not fit, or the machine refuses.
    pub fn resize(&mut self, sizes: &Sizes) -> Result<(), Error> {
        self.sizes = sizes.clone();
        let shape = Shape { sizes: sizes.clone(), ..self.wanted.shape.clone() };
        // A device has room for the receiver of one lane.
        self.lanes.clear();
        self.lanes = lanes(&self.near, &self.far, &shape, self.wanted, None)?;
        Ok(())
    }

    /// What the generator adds by itself, and can do at most.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn floor(&self, schedule: &Schedule) -> Result<super::Floor, Error> {
        let shape = Shape { sizes: self.sizes.clone(), ..self.wanted.shape.clone() };
        floor::measure(&Wanted { shape, ..self.wanted.clone() }, schedule, self.lanes[0].means(), self.stop)
    }

    /// It is to end.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The router, where it is ours.
    pub fn router(&self) -> Option<&'n NetNs> {
        self.router
    }

    /// All whose counters are at hand: of what sends and receives, and of our own router.
    pub fn devices(&self) -> Vec<Device<'n>> {
        let of = |ns: Option<&'n NetNs>, name: &str| {
            ns.map_or_else(|| Device::here(name), |ns| Device::inside(ns, name))
        };
        let ends = [&self.near, &self.far].map(|station| of(station.ns, &station.ifname));
        let ports =
            [Segment::LAN.port, Segment::WAN.port].map(|port| self.router.map(|ns| of(Some(ns), port)));
        ends.into_iter().chain(ports.into_iter().flatten()).collect()
    }

    /// What sends and receives.
    pub fn nics(&self) -> &[Nic] {
        &self.nics
    }
}
