//! The process of the external engine: started when ports want it, watched, and started again when it has ended.

use super::{Daemon, blocking::BlockingThread};
use crate::queue_settings;
use nix::libc;
use shunt_api::{
    AfXdpMode, Config, Failure, FailureCode, PortQos, QosRemoval, QosStatus, QosTable, UnusedQueues,
    WaitChoice,
};
use shunt_bpf::{DataPlane, abi};
use shunt_core::{Event, ExternalPorts, ExternalState};
use shunt_xsk::protocol::{self, Order, Port, Qos, QosCounters, Report, Waiting};
use std::{
    collections::BTreeMap,
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            net,
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use tokio::{
    io::Interest,
    net::UnixDatagram,
    time::{Instant, sleep_until, timeout},
};

/// How often the engine's heartbeat is looked at.
const CHECK: Duration = Duration::from_millis(100);
/// An engine without a heartbeat for this long is killed. XDP passes packets by it earlier.
const STALLED: Duration = Duration::from_millis(600);
/// How long the start of the daemon waits for the engine.
const START: Duration = Duration::from_secs(2);
/// How long an engine that is to stop may take.
const STOP: Duration = Duration::from_secs(1);
/// The pause before an engine that has ended is started again; doubled each time.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The engine's process, and what is wanted of it.
#[derive(Default)]
pub(super) struct ExternalEngine {
    wanted: ExternalPorts,
    running: Option<Running>,
    /// When to start it again, and the pause before that.
    retry: Option<Instant>,
    pause: Option<Duration>,
    counters: Vec<QosCounters>,
    /// A process is being ended; the next one starts after that.
    ending: bool,
}

struct Running {
    child: Child,
    /// It keeps the bounds of messages.
    socket: UnixDatagram,
    /// The ports by slot, as they were at the start: a name may have changed.
    ports: BTreeMap<u16, Port>,
    ready: bool,
    /// How its sockets work, once it is ready.
    mode: Option<AfXdpMode>,
    /// It was told to stop, because other ports or queues are wanted.
    stopping: bool,
    check: Instant,
    beat: (u64, Instant),
}

/// Something about the engine.
pub(super) enum News {
    /// It said something.
    Said(Report),
    /// It has ended.
    Ended,
    /// Its heartbeat is to be looked at.
    Check,
    /// It is to be started again.
    Retry,
}

impl ExternalEngine {
    /// Waits for news; forever while no engine is wanted. May be dropped at any time.
    pub(super) async fn news(&mut self) -> News {
        let Some(running) = &mut self.running else {
            return match self.retry {
                Some(at) => {
                    sleep_until(at).await;
                    News::Retry
                }
                None => std::future::pending().await,
            };
        };
        tokio::select! {
            said = running.receive() => match said {
                Ok(Some((report, _))) => News::Said(report),
                Ok(None) | Err(_) => News::Ended,
            },
            () = sleep_until(running.check) => News::Check,
        }
    }

    /// How the sockets of the engine work, if it runs.
    pub(super) fn mode(&self) -> Option<AfXdpMode> {
        self.running.as_ref()?.mode
    }

    /// Whether the engine serves what it should, or waits for its next start.
    pub(super) fn is_settled(&self) -> bool {
        !self.ending && self.running.as_ref().is_none_or(|running| running.ready && !running.stopping)
    }

    /// Stops the engine, which sends what it has received.
    pub(super) async fn stop(&mut self) {
        self.retry = None;
        let Some(mut running) = self.running.take() else { return };
        running.order_stop();
        let ended = async { while let Ok(Some(_)) = running.receive().await {} };
        let _ = timeout(STOP, ended).await;
        if let Err(error) = running.end() {
            tracing::warn!("cannot stop the external engine: {error}");
        }
    }
}

impl Running {
    /// Waits for the next report; None if the engine has closed its end.
    async fn receive(&self) -> io::Result<Option<(Report, Vec<OwnedFd>)>> {
        self.socket.async_io(Interest::READABLE, || protocol::receive(&self.socket)).await
    }

    fn order_stop(&mut self) {
        self.stopping = true;
        // An engine that is gone has stopped.
        let _ = protocol::send(self.socket.as_fd(), &Order::Stop, &[]);
    }

    /// Ends the process if it has not ended, and says how it did.
    fn end(mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    fn start(plane: &DataPlane, config: &Config, ports: Vec<Port>, zero_copy: bool) -> io::Result<Self> {
        let (ours, theirs) = protocol::socket_pair()?;
        let by_slot = ports.iter().map(|port| (port.slot, port.clone())).collect();
        let order = Order::Start {
            core: config.external_core,
            waiting: match config.external_wait {
                WaitChoice::Adaptive => Waiting::Adapts,
                WaitChoice::Poll => Waiting::Polls,
                WaitChoice::Interrupt => Waiting::Sleeps,
            },
            max_flows: config.max_flows,
            qos: queues(&config.qos, ports.iter().map(|port| (port.slot, port.name.clone()))),
            ports,
            zero_copy,
            copy_vlan: Some(config.external_copy_vlan).filter(|vlan| *vlan != 0),
        };
        let handles = plane.external_handles().map_err(io::Error::other)?;
        protocol::send(ours.as_fd(), &order, &handles)?;
        // The name says what the program is to do, if it is that of small routers.
        let child = Command::new("/proc/self/exe")
            .arg0("shuntd")
            .arg("--external-engine")
            .stdin(theirs)
            .stdout(Stdio::null())
            .spawn()?;
        let now = Instant::now();
        Ok(Self {
            child,
            socket: UnixDatagram::from_std(net::UnixDatagram::from(ours))?,
            ports: by_slot,
            ready: false,
            mode: None,
            stopping: false,
            check: now + CHECK,
            beat: (0, now),
        })
    }
}

impl Daemon {
    /// Lets the engine serve these ports and no others.
    pub(super) fn serve_externally(&mut self, ports: ExternalPorts) {
        self.external.wanted = ports;
        match &mut self.external.running {
            Some(running) => running.order_stop(),
            None if self.external.ending => {}
            None => self.start_external(),
        }
    }

    /// Lets a process with other options take the place of the present one, if there is one.
    pub(super) fn restart_external(&mut self) {
        if let Some(running) = &mut self.external.running {
            running.order_stop();
        }
    }

    fn start_external(&mut self) {
        self.external.retry = None;
        self.external.counters.clear();
        let wanted = self.external.wanted.ports.iter();
        let ports: Vec<Port> = wanted.filter_map(|ifindex| self.external_port(*ifindex)).collect();
        if ports.is_empty() {
            let fails = self.beyond_external();
            return self.handle(Event::External(ExternalState { fails, ..ExternalState::default() }));
        }
        let zero_copy = self.external.wanted.copied.is_empty();
        match Running::start(&self.plane, &self.config, ports, zero_copy) {
            Ok(running) => {
                tracing::info!("external engine: started, pid {}", running.child.id());
                self.external.running = Some(running);
            }
            Err(error) => self.external_is_down(&format!("cannot be started: {error}")),
        }
    }

    fn external_port(&self, ifindex: u32) -> Option<Port> {
        let (slot, name) = (self.plane.slot(ifindex).filter(has_place)?, self.name(ifindex));
        Some(Port { slot, ifindex, queues: receive_queues(&name), name })
    }

    /// The ports that the engine has no place for, and why.
    fn beyond_external(&self) -> BTreeMap<u32, String> {
        let ports = self.external.wanted.ports.iter().copied();
        let beyond = ports.filter(|port| self.plane.slot(*port).is_some_and(|slot| !has_place(&slot)));
        let why = format!("it serves the first {} ports", abi::EXTERNAL_PORTS_MAX);
        beyond.map(|port| (port, why.clone())).collect()
    }

    /// Waits until the engine serves its ports or cannot, so that the daemon does not report ports that are about to
    /// change.
    pub(super) async fn await_external(&mut self) {
        let until = Instant::now() + START;
        while self.external.running.as_ref().is_some_and(|running| !running.ready) {
            let Ok(news) =
                timeout(until.saturating_duration_since(Instant::now()), self.external.news()).await
            else {
                return tracing::warn!("external engine: not ready after {} s", START.as_secs());
            };
            self.on_external(news);
            self.beat();
        }
    }

    pub(super) fn on_external(&mut self, news: News) {
        match news {
            News::Said(report) => self.external_said(report),
            News::Ended => self.external_ended(),
            News::Check => self.check_external(),
            News::Retry => self.start_external(),
        }
    }

    fn external_said(&mut self, report: Report) {
        let mut fails = self.beyond_external();
        let Some(running) = &mut self.external.running else { return };
        match report {
            Report::Ready { served, failed, zero_copy, refused } => {
                running.ready = true;
                running.mode = Some(if zero_copy { AfXdpMode::ZeroCopy } else { AfXdpMode::Copy });
                let on = |slot: &u16| Some(running.ports.get(slot)?.ifindex);
                fails.extend(failed.into_iter().filter_map(|(slot, why)| Some((on(&slot)?, why))));
                let state =
                    ExternalState { serves: served.iter().filter_map(on).collect(), fails, down: None };
                self.log_mode(zero_copy, refused);
                for (ifindex, why) in &state.fails {
                    tracing::warn!("{}: the external engine cannot serve it: {why}", self.name(*ifindex));
                }
                self.handle(Event::External(state));
                self.serve_new_queues();
            }
            Report::Counters(counters) => {
                let is_new = |slot| counters.iter().any(|new| new.slot == slot);
                self.external.counters.retain(|old| !is_new(old.slot));
                self.external.counters.extend(counters);
            }
            Report::Warning(text) => tracing::warn!("external engine: {text}"),
            Report::Failed(text) => tracing::warn!("external engine: {text}"),
        }
    }

    fn log_mode(&self, zero_copy: bool, refused: Option<String>) {
        if zero_copy {
            return tracing::info!("external engine: AF_XDP works with zero copy");
        }
        let names = self.external.wanted.copied.iter().map(|ifindex| self.name(*ifindex)).collect::<Vec<_>>();
        match refused {
            Some(why) => tracing::warn!("external engine: AF_XDP copies packets: no zero copy: {why}"),
            None => tracing::info!(
                "external engine: AF_XDP copies packets, on all ports: no zero copy in the drivers of {}",
                names.join(", ")
            ),
        }
    }

    /// Starts the engine again if a port has more receive queues than it was told: some drivers (virtio_net) receive on
    /// further queues as soon as an XDP program is attached.
    pub(super) fn serve_new_queues(&mut self) {
        if !self.external.running.as_ref().is_some_and(|running| running.ready) {
            return;
        }
        let ports = self.external.running.iter().flat_map(|running| running.ports.values());
        let mut named = ports.map(|port| (self.name(port.ifindex), port.queues));
        let Some((name, _)) = named.find(|(name, queues)| receive_queues(name) > *queues) else { return };
        tracing::info!("external engine: starting again: {name} receives on more queues now");
        if let Some(running) = &mut self.external.running {
            running.ready = false;
            running.order_stop();
        }
    }

    fn external_ended(&mut self) {
        let Some(running) = self.external.running.take() else { return };
        let (stopping, ready) = (running.stopping, running.ready);
        self.external.ending = true;
        // The kernel may take long to end a process, for example to unmap its memory.
        self.in_background(
            BlockingThread::Processes,
            "external-engine",
            move |_| running.end(),
            move |daemon, status| daemon.external_is_over(stopping, ready, status),
        );
    }

    fn external_is_over(&mut self, stopping: bool, ready: bool, status: io::Result<ExitStatus>) {
        self.external.ending = false;
        if stopping {
            return self.start_external();
        }
        if ready {
            self.external.pause = None;
        }
        self.external_is_down(&status.map_or_else(|error| error.to_string(), how_it_ended));
    }

    /// The ports use tc until the engine runs again.
    fn external_is_down(&mut self, why: &str) {
        let pause = self.external.pause.map_or(RETRY, |before| (2 * before).min(RETRY_MAX));
        tracing::warn!(
            "external engine: {why}; its ports use tc; starting it again in {} s",
            pause.as_secs()
        );
        self.external.pause = Some(pause);
        self.external.retry = Some(Instant::now() + pause);
        self.external.counters.clear();
        let down = Some(format!("the external engine {why}"));
        self.handle(Event::External(ExternalState { down, ..ExternalState::default() }));
    }

    /// Kills an engine that hangs. Then it is found to have ended.
    fn check_external(&mut self) {
        let beat = self.plane.external_beat();
        let Some(running) = &mut self.external.running else { return };
        let now = Instant::now();
        running.check = now + CHECK;
        if running.beat.0 != beat || !running.ready {
            running.beat = (beat, now);
        } else if now - running.beat.1 > STALLED {
            tracing::warn!("external engine: no heartbeat for {} ms; killing it", STALLED.as_millis());
            let _ = running.child.kill();
        }
    }
}

/// Who changes queues without a reload.
const BY_QOS: &str = "shunt qos";

impl Daemon {
    /// The queues of all ports that have some, and what they have counted.
    pub(super) fn qos_status(&self) -> Vec<QosStatus> {
        let of_port = |(port, qos): (&String, &PortQos)| {
            let (slot, unused) = match self.slot_in_use(port) {
                Ok(slot) => (Some(slot), None),
                Err(unused) => (None, Some(unused.why)),
            };
            let counted = self.external.counters.iter().find(|counters| Some(counters.slot) == slot);
            queue_settings::status(port, qos, unused, counted)
        };
        self.config.qos.iter().map(of_port).collect()
    }

    /// The slot of a port whose queues are in use, or why they are not.
    fn slot_in_use(&self, port: &str) -> Result<u16, UnusedQueues> {
        let ifindex = queue_settings::port_with_queues(&self.core, port)?;
        self.plane.slot(ifindex).ok_or_else(|| UnusedQueues {
            port: port.to_owned(),
            why: "the port has no slot".to_owned(),
            remedy: "try again in a moment".to_owned(),
        })
    }

    /// Sets the queues of the ports in a table; the others keep theirs.
    pub(super) fn set_qos(&mut self, table: QosTable) -> Result<u64, Failure> {
        let ports: Vec<&str> = self.core.ports().map(|(link, _)| link.name.as_str()).collect();
        if let Some(unknown) = table.keys().find(|name| !ports.contains(&name.as_str())) {
            let why = format!("`{unknown}` is not a port of this instance; its ports: {}", ports.join(", "));
            return Err(Failure::new(FailureCode::PortMissing, why));
        }
        for port in table.keys() {
            if let Err(UnusedQueues { why, remedy, .. }) = self.slot_in_use(port) {
                return Err(Failure::new(
                    FailureCode::Usage,
                    format!("`{port}` has no queues: {why}; {remedy}"),
                ));
            }
        }
        let count = table.len() as u64;
        let before = self.config.qos.clone();
        self.config.qos.extend(table);
        self.note_queues(&before, BY_QOS);
        self.reloads.compare_again();
        self.send_qos();
        Ok(count)
    }

    /// Removes the queues of ports.
    pub(super) fn remove_qos(&mut self, removal: &QosRemoval) -> Result<u64, Failure> {
        if let Some(unknown) = removal.ports.iter().find(|port| !self.config.qos.contains_key(*port)) {
            return Err(Failure::new(
                FailureCode::PortMissing,
                format!("`{unknown}` has no queues; `shunt qos` lists the ports that have some"),
            ));
        }
        let before = self.config.qos.clone();
        self.config.qos.retain(|port, _| !removal.ports.contains(port));
        self.note_queues(&before, BY_QOS);
        self.reloads.compare_again();
        self.send_qos();
        Ok(removal.ports.len() as u64)
    }

    pub(super) fn send_qos(&self) {
        let Some(running) = &self.external.running else { return };
        let named = running.ports.values().map(|port| (port.slot, self.name(port.ifindex)));
        let order = Order::Qos(queues(&self.config.qos, named));
        if let Err(error) = protocol::send(running.socket.as_fd(), &order, &[]) {
            tracing::warn!("cannot send the new queue settings to the external engine: {error}");
        }
    }

    /// The queues of the configuration that are not in use.
    pub(super) fn unused_queues(&self) -> Vec<UnusedQueues> {
        queue_settings::unused(&self.core, &self.config.qos)
    }

    /// Warns of queues that are not in use, once the ports are known.
    pub(super) fn warn_of_unused_queues(&self) {
        for UnusedQueues { port, why, .. } in self.unused_queues() {
            tracing::warn!("qos.{port}: not in use: {why}");
        }
    }
}

/// Whether the engine can serve a port in this slot.
fn has_place(slot: &u16) -> bool {
    u32::from(*slot) < abi::EXTERNAL_PORTS_MAX
}

/// The queues of those ports, by slot and name, that have some.
fn queues(table: &QosTable, ports: impl Iterator<Item = (u16, String)>) -> Vec<Qos> {
    ports.filter_map(|(slot, name)| Some(queue_settings::for_slot(slot, table.get(&name)?))).collect()
}

fn how_it_ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGSYS) => {
            "made a system call that it does not need, and was killed (seccomp); the kernel's log has the call".to_owned()
        }
        _ => format!("has ended ({status})"),
    }
}

/// The number of receive queues of a device; 1 if it is not known.
fn receive_queues(name: &str) -> u32 {
    let entries = fs::read_dir(format!("/sys/class/net/{name}/queues")).into_iter().flatten().flatten();
    let queues = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count();
    u32::try_from(queues).unwrap_or(1).max(1)
}
