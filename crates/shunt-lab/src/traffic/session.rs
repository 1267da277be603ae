//! A test bed with its senders and receivers, which stays set up between runs.

use super::{
    Error, LEAD_NS, Recorded, TrafficSpec,
    figures::Directed,
    floor,
    neighbour::Responder,
    priority::Priority,
    record::Recording,
    require_root,
    station::Station,
    stream::{Frames, Stream},
    testbed::Testbed,
};
use crate::{
    Limit, Nic,
    counters::Device,
    labels::FlowDirection,
    load::PollThreads,
    net::{NetNs, Segment},
};
use shunt_gen::{Addresses, Round, Schedule, Shape, Sizes};
use shunt_traffic::{Arrival, TrafficEnds};
use shunt_wire::line::LinkSpeed;
use std::{
    io,
    net::Ipv4Addr,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Number of labels. Each run has another label, so that a late frame of one run does not count for the next.
const LABELS: u8 = 0x3f;
/// Rate at which translated connections are opened, and number of packets of each.
const OPENING_PPS: f64 = 20_000.0;
const OPENING_PACKETS: u64 = 2;

/// A test bed whose streams are ready to run.
pub struct Session<'n> {
    near: Station<'n>,
    far: Station<'n>,
    streams: Vec<Stream<'n>>,
    sizes: Sizes,
    spec: &'n TrafficSpec,
    router: Option<&'n NetNs>,
    /// The address to which the second port sends, if it is that of a masquerading router.
    translated: Option<Addresses>,
    nics: Vec<Nic>,
    /// Speed of the slower line.
    speed: Option<LinkSpeed>,
    stop: &'n AtomicBool,
    label: u8,
    priority: Priority,
}

/// Sets up the test bed, calls `work`, and undoes the setup.
///
/// # Errors
/// Fails if the request is not possible, if the operating system returns an error, or if `work` fails.
pub fn session<R, E: From<Error>>(
    spec: &TrafficSpec,
    testbed: &Testbed,
    stop: &AtomicBool,
    work: impl FnOnce(&mut Session<'_>) -> Result<R, E>,
) -> Result<R, E> {
    require_root()?;
    let network = testbed.network(spec)?;
    let (near, far) = network.stations(spec)?;
    let round =
        spec.replay.as_ref().map(|replay| replay.round(spec, testbed.speed(spec.speed))).transpose()?;
    let responders =
        [(&near, spec.shape.source, &spec.shape.tags), (&far, spec.shape.destination, &spec.far_tags)];
    let responders = responders
        .map(|(station, addresses, tags)| Responder::for_station(station, addresses, !tags.is_empty()));
    let responders: Vec<Responder> =
        responders.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
    let translated = network.translated(spec);
    let streams = streams([&near, &far], &spec.shape, spec, translated, round)?;
    let nics = [&near, &far].map(|station| station.within(|| Nic::read(&station.ifname))).to_vec();
    let speed = testbed.line_speed(spec.speed, &nics);
    let mut session = Session {
        near,
        far,
        streams,
        sizes: spec.shape.sizes.clone(),
        spec,
        router: network.router(),
        translated,
        nics,
        speed,
        stop,
        label: 0,
        priority: Priority::ordinary(),
    };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        responders.iter().for_each(|responder| {
            scope.spawn(|| responder.serve(&over));
        });
        if spec.nat && spec.both {
            session.open_connections()?;
        }
        work(&mut session)
    })
}

/// Ends threads that serve a session when the session ends, on every path.
pub(super) struct Over<'o>(pub(super) &'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn streams<'n>(
    [near, far]: [&Station<'n>; 2],
    shape: &Shape,
    spec: &TrafficSpec,
    translated: Option<Addresses>,
    round: Option<Round>,
) -> Result<Vec<Stream<'n>>, Error> {
    if spec.answered {
        return Ok(vec![Stream::answered(near, far, shape.clone(), spec.method)?]);
    }
    let hand_on = spec.pcap_out.is_some();
    let forward = match spec.replay.as_ref().zip(round) {
        Some((replay, round)) => Frames::Captured { replay, round },
        None => Frames::Made(shape.clone()),
    };
    let mut streams = vec![Stream::new(near, far, forward, spec.method, hand_on)?];
    if spec.both {
        let mut back = Shape { tags: spec.far_tags.clone(), ..shape.clone().reversed() };
        back.destination = translated.unwrap_or(back.destination);
        streams.push(Stream::new(far, near, Frames::Made(back), spec.method, false)?);
    }
    Ok(streams)
}

/// The place of a direction in the session's streams.
fn nth_stream(way: FlowDirection) -> usize {
    usize::from(way == FlowDirection::Reverse)
}

impl<'n> Session<'n> {
    /// Sends in all directions at once, and waits for packets under way.
    ///
    /// # Errors
    /// Fails if the operating system returns an error.
    pub fn run(&mut self, schedule: &Schedule) -> Result<Vec<Directed>, Error> {
        self.run_some(schedule, 0..self.streams.len())
    }

    /// Opens all connections from the LAN, so that packets from the WAN are answers.
    fn open_connections(&mut self) -> Result<(), Error> {
        self.run_one_way(FlowDirection::Forward, &self.opening()).map(drop)
    }

    /// Sends the first segments of TCP both ways, even if the load is sent in one direction: a router that tracks
    /// connections takes them for established only then. The way back is known through a router of our own.
    pub(crate) fn open_tcp(&mut self) -> Result<(), Error> {
        let is_tcp = self.spec.shape.tcp.is_some() && !self.spec.answered;
        if !is_tcp || self.router.is_none() {
            return Ok(());
        }
        let one_way = !self.spec.both;
        if one_way {
            self.rebuild(&TrafficSpec { both: true, ..self.spec.clone() })?;
        }
        for way in [FlowDirection::Forward, FlowDirection::Reverse] {
            self.run_one_way(way, &self.opening())?;
        }
        if one_way { self.rebuild(self.spec) } else { Ok(()) }
    }

    /// The first packets of all connections.
    fn opening(&self) -> Schedule {
        let packets = Some(u64::from(self.spec.flows()) * OPENING_PACKETS);
        Schedule { pps: Some(OPENING_PPS), burst: 1, packets, duration: None }
    }

    /// Makes the streams of this traffic. A device takes the receiver of one stream only, so the old ones go first.
    fn rebuild(&mut self, spec: &TrafficSpec) -> Result<(), Error> {
        self.streams.clear();
        self.streams = streams([&self.near, &self.far], &spec.shape, spec, self.translated, None)?;
        Ok(())
    }

    /// As [`Session::run`], in one of two directions.
    ///
    /// # Errors
    /// Fails if the operating system returns an error.
    pub(crate) fn run_one_way(&mut self, way: FlowDirection, schedule: &Schedule) -> Result<Directed, Error> {
        let nth = nth_stream(way);
        let ran = self.run_some(schedule, nth..nth + 1)?.pop();
        ran.ok_or_else(|| Error::Asked("nothing is sent in this direction".to_owned()))
    }

    fn run_some(&mut self, schedule: &Schedule, streams: Range<usize>) -> Result<Vec<Directed>, Error> {
        let start_ns = shunt_traffic::now_ns() + LEAD_NS;
        self.label = self.label % LABELS + 1;
        let (label, stop, limit) = (self.label, self.stop, self.limit());
        let priority = self.priority;
        let ran: Result<Vec<Directed>, Error> = thread::scope(|scope| {
            let threads: Vec<_> = self.streams[streams]
                .iter_mut()
                .map(|stream| {
                    scope.spawn(move || {
                        priority.apply();
                        stream.run(schedule, start_ns, label, stop)
                    })
                })
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

    /// Lets senders run before all ordinary threads from now on.
    pub(crate) fn change_priority(&mut self) {
        self.priority.change();
    }

    /// Keeps the priority of senders ordinary: a process that polls forwards packets at this priority.
    pub(crate) fn stay_ordinary(&mut self) {
        self.priority.stay_ordinary();
    }

    /// Speed of the slower of the two lines; None if it is unknown.
    pub fn line_speed(&self) -> Option<LinkSpeed> {
        self.speed
    }

    /// The most that the line carries of these frames in one direction; None if its speed is unknown.
    pub fn limit(&self) -> Option<Limit> {
        let speed = self.speed?;
        Some(match &self.spec.replay {
            None => Limit::for_line(speed, &self.sizes, 1),
            Some(replay) => {
                let mean = replay.mean_bytes();
                let of = format!("{speed}bit/s, frames of {mean:.0} bytes in the mean");
                Limit { value: speed.frames_per_second(mean), of }
            }
        })
    }

    /// As [`Session::run`], and records the frames that the second port receives.
    pub(super) fn record(
        &mut self,
        schedule: &Schedule,
        recording: Recording<'_>,
    ) -> Result<(Vec<Directed>, Recorded), Error> {
        let handed = recording.listen(&self.streams[0])?;
        handed.during(|| self.run(schedule))
    }

    /// Sets the frame sizes for all following runs. They must not exceed the sizes of the setup.
    ///
    /// # Errors
    /// Fails if the headers do not fit or the operating system returns an error.
    pub fn resize(&mut self, sizes: &Sizes) -> Result<(), Error> {
        self.sizes = sizes.clone();
        let shape = Shape { sizes: sizes.clone(), ..self.spec.shape.clone() };
        // A device takes the receiver of one stream only, so remove the old streams first.
        self.streams.clear();
        self.streams = streams([&self.near, &self.far], &shape, self.spec, self.translated, None)?;
        Ok(())
    }

    /// Sets the number of flows for all following runs.
    ///
    /// # Errors
    /// Fails if there are too many flows or the operating system returns an error.
    pub(crate) fn set_flows(&mut self, flows: u32) -> Result<(), Error> {
        let shape = Shape { flows: Some(flows), sizes: self.sizes.clone(), ..self.spec.shape.clone() };
        self.streams.clear();
        self.streams = streams([&self.near, &self.far], &shape, self.spec, self.translated, None)?;
        Ok(())
    }

    /// Sets the addresses and ports of the first flows of one direction, for traffic whose flows are listed.
    ///
    /// # Errors
    /// Fails if there are more than the direction has flows, or the operating system returns an error.
    pub(crate) fn list(&mut self, way: FlowDirection, ends: &[TrafficEnds]) -> Result<(), Error> {
        self.streams[nth_stream(way)].list(ends)
    }

    /// The arrivals of each flow of one direction in its last run.
    ///
    /// # Errors
    /// Fails if the operating system returns an error.
    pub(crate) fn arrivals(&self, way: FlowDirection) -> Result<Vec<Arrival>, Error> {
        self.streams[nth_stream(way)].arrivals()
    }

    /// The IPv4 addresses of the first port and of the second.
    ///
    /// # Errors
    /// Fails if a port has none.
    pub(crate) fn addresses(&self) -> Result<[Ipv4Addr; 2], Error> {
        let own = |station: &Station<'_>| -> Result<Ipv4Addr, Error> {
            station.address_like(Ipv4Addr::UNSPECIFIED.into())?;
            Ok(station.v4.unwrap_or(Ipv4Addr::UNSPECIFIED))
        };
        Ok([own(&self.near)?, own(&self.far)?])
    }

    /// Measures the latency and the highest rate of the generator alone.
    ///
    /// # Errors
    /// Fails if the operating system returns an error.
    pub fn floor(&self, schedule: &Schedule) -> Result<super::Floor, Error> {
        let shape = Shape { sizes: self.sizes.clone(), ..self.spec.shape.clone() };
        floor::measure(
            &TrafficSpec { shape, ..self.spec.clone() },
            schedule,
            self.streams[0].method(),
            self.stop,
        )
    }

    /// Whether the measurement is to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The router, if it is one of our own.
    pub fn router(&self) -> Option<&'n NetNs> {
        self.router
    }

    /// Has kernel threads poll the ports of our own router, and the device that receives from it. Returns the threads
    /// of the ports, whose CPU time is that of the router; none if the router is not our own.
    ///
    /// # Errors
    /// Fails if a device is not polled by NAPI.
    pub(crate) fn poll_by_threads(&self) -> io::Result<Vec<PollThreads>> {
        if let Some(ns) = self.far.ns {
            PollThreads::start(ns, &self.far.ifname)?;
        }
        let ports = [Segment::LAN.port, Segment::WAN.port];
        let of_router = |ns: &NetNs| ports.iter().map(|port| PollThreads::start(ns, port)).collect();
        self.router.map_or_else(|| Ok(Vec::new()), of_router)
    }

    /// The devices whose counters can be read: those that send and receive, and those of our own router.
    pub fn devices(&self) -> Vec<Device<'n>> {
        let of = |ns: Option<&'n NetNs>, name: &str| {
            ns.map_or_else(|| Device::here(name), |ns| Device::in_namespace(ns, name))
        };
        let ends = [&self.near, &self.far].map(|station| of(station.ns, &station.ifname));
        let ports =
            [Segment::LAN.port, Segment::WAN.port].map(|port| self.router.map(|ns| of(Some(ns), port)));
        ends.into_iter().chain(ports.into_iter().flatten()).collect()
    }

    /// The hosts around a router of our own, and their devices.
    pub(crate) fn hosts(&self) -> Vec<(&'n NetNs, &str)> {
        let ends = [&self.near, &self.far].into_iter();
        ends.filter_map(|station| Some((station.ns?, station.ifname.as_str()))).collect()
    }

    /// The devices that send and receive.
    pub fn nics(&self) -> &[Nic] {
        &self.nics
    }
}
