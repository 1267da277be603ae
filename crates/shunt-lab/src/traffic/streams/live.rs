//! A session whose streams start, change and stop one by one.

use super::{RampSpec, StreamReport, StreamSpec, StreamsSpec, lane::Lane, running::Running, setup::Setup};
use crate::{
    Nic,
    traffic::{
        Error, LEAD_NS,
        neighbour::Responder,
        require_root, sender,
        session::Over,
        station::Station,
        stream::{between, drain},
        testbed::{Network, Testbed},
    },
};
use shunt_gen::{Addresses, Course, Rate, Timetable};
use shunt_traffic::{Pacing, now_ns};
use shunt_wire::line::LinkSpeed;
use std::{
    ops::Range,
    sync::atomic::AtomicBool,
    thread::{self, Scope},
    time::{Duration, Instant},
};

/// A change takes effect this long after the request: the sender has the new steps by then.
const CHANGE_NS: u64 = 5_000_000;
/// Longest wait for a stream to end after it was stopped.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// The load of a stream without a rate, in packets/s: more than one CPU sends.
const UNPACED: f64 = 1e8;

/// A session.
pub struct LiveStreams<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    over: &'env AtomicBool,
    network: &'env Network,
    setup: &'env Setup,
    spec: &'env StreamsSpec,
    speed: Option<LinkSpeed>,
    /// From the first port to the second, and back.
    lanes: [Option<Lane>; 2],
    streams: Vec<Running>,
    /// Addresses that are answered for, with the device, and whether its frames have tags.
    answered: Vec<(u32, Addresses, bool)>,
    nics: Vec<Nic>,
}

pub(super) fn session<R>(
    spec: &StreamsSpec,
    setup: &Setup,
    testbed: &Testbed,
    work: impl FnOnce(&mut LiveStreams<'_, '_>) -> Result<R, Error>,
) -> Result<R, Error> {
    require_root()?;
    let network = testbed.network(&setup.network_spec()?)?;
    network.check_devices(&setup.network_spec()?)?;
    let speed = testbed.speed(spec.speed);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        let mut live = LiveStreams {
            scope,
            over: &over,
            network: &network,
            setup,
            spec,
            speed,
            lanes: [None, None],
            streams: Vec::new(),
            answered: Vec::new(),
            nics: Vec::new(),
        };
        work(&mut live)
    })
}

impl<'env> LiveStreams<'_, 'env> {
    /// Starts streams together. A stream replaces one of the same name that is over. If one cannot start, none does.
    ///
    /// # Errors
    /// Fails if a stream is not possible, a name is in use, or the operating system returns an error.
    pub fn start(&mut self, specs: &[StreamSpec]) -> Result<(), Error> {
        for (nth, spec) in specs.iter().enumerate() {
            spec.check()?;
            if specs[..nth].iter().any(|other| other.name == spec.name) {
                return Err(Error::Asked(format!("stream `{}`: the name occurs twice", spec.name)));
            }
            match self.streams.iter().position(|one| one.spec.name == spec.name) {
                Some(nth) if !self.streams[nth].sent.state()?.is_over(now_ns()) => {
                    return Err(Error::Asked(format!("stream `{}` is running; stop it first", spec.name)));
                }
                Some(nth) => self.forget(nth)?,
                None => {}
            }
        }
        let mut tables = Vec::new();
        for spec in specs {
            match self.prepare(spec) {
                Ok((running, table)) => {
                    self.streams.push(running);
                    tables.push(table);
                }
                Err(error) => {
                    for _ in tables {
                        self.forget(self.streams.len() - 1)?;
                    }
                    return Err(spec.named(error));
                }
            }
        }
        let start_ns = now_ns() + LEAD_NS;
        let first = self.streams.len() - specs.len();
        for (running, table) in self.streams[first..].iter_mut().zip(&tables) {
            running.start_ns = start_ns;
            if let Some(lane) = &self.lanes[usize::from(running.spec.reverse)] {
                running.sent.start(table, running.pacing, start_ns, lane.label)?;
                lane.sending(&running.share).expect_start(start_ns);
            }
        }
        Ok(())
    }

    fn prepare(&mut self, spec: &StreamSpec) -> Result<(Running, Timetable), Error> {
        let course = spec.course(self.speed)?;
        let table = course.timetable()?;
        let largest = spec.shape.sizes.largest();
        if largest > self.setup.largest {
            return Err(Error::Asked(format!(
                "frames of {largest} bytes: this session has frames of at most {}",
                self.setup.largest
            )));
        }
        let (near, far) = self.network.stations(&spec.alone())?;
        if self.nics.is_empty() {
            self.nics = [&near, &far].map(|station| station.within(|| Nic::read(&station.ifname))).to_vec();
        }
        let (from, to) = if spec.reverse { (far, near) } else { (near, far) };
        let is_tagged = !spec.shape.tags.is_empty();
        self.answer_for(&from, spec.shape.source, is_tagged)?;
        self.answer_for(&to, spec.shape.destination, is_tagged)?;
        let (name, traffic) = between(&from, &to, spec.shape.clone())?;
        let load = table.most_pps().unwrap_or(UNPACED);
        let lane = self.lane(&from, &to, spec.reverse)?;
        let share = lane.take(traffic.flows, load)?;
        let (sending, first_flow) = (lane.sending(&share), share.flows.start);
        let added = from.within(|| sending.add(share.place, &traffic, first_flow, from.ifindex));
        let sent = added.inspect_err(|_| lane.give_back(&share))?;
        let running = Running {
            spec: spec.clone(),
            share,
            sent,
            pacing: Pacing { burst: spec.burst.max(1), packets: spec.packets },
            from: from.ifname,
            to: to.ifname,
            traffic: name,
            start_ns: 0,
            end: table.end(),
            pps: course.pps,
            paced: table.most_pps().is_some(),
        };
        Ok((running, table))
    }

    /// The lane of a direction, which is made for its first stream.
    fn lane(&mut self, from: &Station<'env>, to: &Station<'env>, reverse: bool) -> Result<&mut Lane, Error> {
        let place = &mut self.lanes[usize::from(reverse)];
        if place.is_none() {
            let lane = Lane::new(from, to, self.setup, self.spec.method, self.spec.cpus.max(1))?;
            for sending in lane.sendings() {
                let (sending, ns, over) = (sending.clone(), from.ns, self.over);
                self.scope.spawn(move || {
                    if let Some(ns) = ns {
                        ns.enter();
                    }
                    sending.serve(over);
                });
            }
            *place = Some(lane);
        }
        place.as_mut().ok_or_else(|| Error::Machine("no receiver".to_owned()))
    }

    /// Answers ARP and neighbour discovery for addresses that the device does not have.
    fn answer_for(
        &mut self,
        station: &Station<'_>,
        addresses: Addresses,
        is_tagged: bool,
    ) -> Result<(), Error> {
        let key = (station.ifindex, addresses, is_tagged);
        if self.answered.contains(&key) {
            return Ok(());
        }
        self.answered.push(key);
        if let Some(responder) = Responder::for_station(station, addresses, is_tagged)? {
            let over = self.over;
            self.scope.spawn(move || responder.serve(over));
        }
        Ok(())
    }

    /// Changes the rate of a stream, at once or by a ramp from the present rate.
    ///
    /// # Errors
    /// Fails if there is no such stream, it is over, or the rate is not possible.
    pub fn change_rate(&mut self, name: &str, rate: Rate, ramp: Option<RampSpec>) -> Result<(), Error> {
        let speed = self.speed;
        let running = self.find(name)?;
        let mean = running.spec.shape.sizes.mean_bytes();
        let course = || {
            let pps = rate.packets_per_second(mean, speed)?;
            let ramp = ramp.map(|ramp| ramp.between(running.pps, pps, mean, speed)).transpose()?;
            let at = running.since_start(now_ns() + CHANGE_NS);
            Ok::<_, Error>((at, Course::change(at, ramp, pps, running.end)?, pps))
        };
        let (at, steps, pps) = course().map_err(|error| running.spec.named(error))?;
        if !running.sent.change(at, &steps)? {
            return Err(Error::Asked(format!("stream `{name}` is over; start it again")));
        }
        running.pps = pps;
        running.paced &= pps.is_some();
        Ok(())
    }

    /// Ends a stream, or all, waits for packets under way, and returns the figures. The names are free then.
    ///
    /// # Errors
    /// Fails if there is no such stream.
    pub fn stop(&mut self, name: Option<&str>) -> Result<Vec<StreamReport>, Error> {
        let streams = match name {
            Some(name) => {
                let nth = self.place(name)?;
                nth..nth + 1
            }
            None => 0..self.streams.len(),
        };
        self.end(streams.clone())?;
        let reports = self.report(streams.clone())?;
        streams.rev().try_for_each(|nth| self.forget(nth))?;
        Ok(reports)
    }

    /// A stream that runs until it is stopped.
    ///
    /// # Errors
    /// Fails if the operating system returns an error.
    pub fn endless(&self) -> Result<Option<&str>, Error> {
        for Running { spec, sent, .. } in &self.streams {
            if spec.duration.is_none() && spec.packets.is_none() && !sent.state()?.is_over(now_ns()) {
                return Ok(Some(&spec.name));
            }
        }
        Ok(None)
    }

    /// Whether all packets of all streams were sent.
    ///
    /// # Errors
    /// Fails if the operating system returns an error.
    pub fn is_over(&self) -> Result<bool, Error> {
        self.lanes.iter().flatten().flat_map(Lane::sendings).try_for_each(|sending| sending.check())?;
        self.ended(0..self.streams.len())
    }

    /// Ends all streams, and waits for packets under way.
    ///
    /// # Errors
    /// Fails if the operating system returns an error.
    pub fn end_all(&mut self) -> Result<(), Error> {
        self.end(0..self.streams.len())
    }

    /// The figures of all streams so far.
    ///
    /// # Errors
    /// Fails if the operating system returns an error.
    pub fn reports(&self) -> Result<Vec<StreamReport>, Error> {
        self.report(0..self.streams.len())
    }

    /// The devices that send and receive.
    pub(super) fn nics(&self) -> Vec<Nic> {
        self.nics.clone()
    }

    /// Number of frames that the kernel builds before it passes them on.
    pub(super) fn batch(&self) -> u32 {
        sender::batch(self.setup.most_pps)
    }

    fn place(&self, name: &str) -> Result<usize, Error> {
        let found = self.streams.iter().position(|running| running.spec.name == name);
        let names: Vec<&str> = self.streams.iter().map(|running| &*running.spec.name).collect();
        found.ok_or_else(|| match names[..] {
            [] => Error::Asked(format!("no stream `{name}`: none was started")),
            _ => Error::Asked(format!("no stream `{name}`: there are {}", names.join(", "))),
        })
    }

    fn find(&mut self, name: &str) -> Result<&mut Running, Error> {
        let nth = self.place(name)?;
        Ok(&mut self.streams[nth])
    }

    fn end(&mut self, streams: Range<usize>) -> Result<(), Error> {
        let at_ns = now_ns() + CHANGE_NS;
        for running in &mut self.streams[streams.clone()] {
            let at = running.since_start(at_ns);
            // False if the stream is over already.
            if running.sent.change(at, &[])? {
                running.end = at;
            }
        }
        let deadline = Instant::now() + END_PATIENCE;
        while !self.ended(streams.clone())? && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        let sent = |running: &Running| Ok::<_, Error>(running.sent.state()?.counted().sent);
        let all: u64 = self.streams[streams.clone()].iter().map(sent).sum::<Result<_, _>>()?;
        drain(all, || {
            let packets = |running: &Running| {
                self.lanes[usize::from(running.spec.reverse)]
                    .as_ref()
                    .map_or(Ok(0), |lane| lane.packets(&running.share))
            };
            self.streams[streams.clone()].iter().map(packets).sum()
        })
    }

    fn ended(&self, streams: Range<usize>) -> Result<bool, Error> {
        let now = now_ns();
        for running in &self.streams[streams] {
            if !running.sent.state()?.is_over(now) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes a stream that is over.
    fn forget(&mut self, nth: usize) -> Result<(), Error> {
        let running = self.streams.remove(nth);
        if let Some(lane) = &mut self.lanes[usize::from(running.spec.reverse)] {
            lane.sending(&running.share).remove(&running.sent)?;
            lane.give_back(&running.share);
        }
        Ok(())
    }

    fn report(&self, streams: Range<usize>) -> Result<Vec<StreamReport>, Error> {
        let mut reports: Vec<(usize, StreamReport)> = Vec::new();
        for (lane, reverse) in self.lanes.iter().zip([false, true]) {
            let Some(lane) = lane else { continue };
            let arrivals = lane.arrivals()?;
            for nth in streams.clone().filter(|nth| self.streams[*nth].spec.reverse == reverse) {
                reports.push((nth, self.streams[nth].report(lane, &arrivals)?));
            }
        }
        reports.sort_by_key(|(nth, _)| *nth);
        Ok(reports.into_iter().map(|(_, report)| report).collect())
    }
}
