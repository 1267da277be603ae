//! Answers the calls of the control socket.

use super::{Daemon, explain::explain, status};
use crate::{
    connection_search::Search,
    conntrack_table::ConntrackReader,
    control::{Call, Job, MetricsSource},
    failures::internal,
    flow_engine::{PortEngine, engine_before_tc, engine_of_program},
    flow_listing::FlowTableReader,
    off_rules::unix_time,
    slow_connections::SlowReader,
};
use shunt_api::{Failure, Happening, Verified, WatchEvent};
use shunt_core::{Event, Link, PortView};
use std::collections::HashMap;
use tokio::sync::broadcast;

impl Daemon {
    /// Answers a call. Jobs that take long are handed to the control socket's threads. Ignores that a client has gone
    /// away.
    pub(super) fn answer(&mut self, call: Call) {
        match call {
            Call::Status(reply) => {
                self.sweeper.refresh(&self.plane, self.config.idle);
                let _ = reply.send(status::collect(self));
            }
            Call::Metrics(reply) => {
                self.sweeper.refresh(&self.plane, self.config.idle);
                let _ = reply.send(self.metrics_source());
            }
            Call::Flows(reply) => {
                let names = self.core.links().map(|link| (link.ifindex, link.name.clone())).collect();
                match FlowTableReader::new(&self.plane, names, self.port_engines()) {
                    Ok(reader) => drop(reply.send(Box::new(reader))),
                    Err(error) => tracing::warn!("cannot open the flow table: {error}"),
                }
            }
            Call::Slow(rates, reply) => {
                let reader = SlowReader::new(&self.plane).map_err(internal);
                let sample = move || reader?.sample(rates).map(|sample| Job::new(move || sample.finish()));
                drop(reply.send(Job::new(sample)));
            }
            Call::Find(selection, reply) => {
                let search = Search::new(&self.plane, selection);
                let run = move || search?.run();
                drop(reply.send(Job::new(move || run().map_err(internal))));
            }
            Call::FindNamed(these, reply) => {
                let search = Search::named(&self.plane, these);
                let run = move || search?.run();
                drop(reply.send(Job::new(move || run().map_err(internal))));
            }
            Call::Explain(candidates, reply) => {
                let _ = reply.send(explain(self, &candidates).map_err(internal));
            }
            Call::Conntrack(reply) => {
                let reader = ConntrackReader::new(&self.plane).map_err(internal);
                drop(reply.send(Job::new(move || reader?.read())));
            }
            Call::History(range, reply) => {
                let answer = self.recorder.history().answer(range);
                drop(reply.send(Job::new(move || Ok(answer.table()))));
            }
            Call::Verified(Verified { verdict, connections }, reply) => {
                self.note(Happening::Verified { verdict, connections });
                let _ = reply.send(());
            }
            Call::MeasurePrograms(reply) => {
                self.recorder.want_costs();
                let _ = reply.send(());
            }
            Call::Watch(reply) => {
                let _ = reply.send(self.watch().map_err(internal));
            }
            Call::Usage(query, reply) => {
                let _ = reply.send(self.answer_usage(query).map(Job::new));
            }
            Call::Flush(reply) => {
                self.handle(Event::Flush);
                self.sweeper.flush(&self.plane, self.config.idle, reply);
            }
            Call::Reload(request, reply) => self.reload_for(request, reply),
            Call::Restart(reply) => {
                let _ = reply.send(self.restart());
            }
            Call::RestartProgress(reply) => {
                let _ = reply.send(self.hand_over.progress());
            }
            // The event loop takes this call itself.
            Call::Stop(_) => {}
            Call::AddStatic(table, reply) => {
                self.static_flows.add(table, reply);
            }
            Call::DelStatic(removal, reply) => {
                self.static_flows.remove(removal, reply);
            }
            Call::ListStatic(reply) => {
                self.static_flows.list(reply);
            }
            Call::AddOff(request, reply) => {
                let added = self.off_rules.add(request, unix_time());
                let _ = reply.send(added.and_then(|()| self.apply_off()));
            }
            Call::DelOff(removal, reply) => {
                let removed = self.off_rules.remove(removal.which.as_ref());
                let _ = reply.send(removed.and_then(|count| Ok((count, self.apply_off()?.1))));
            }
            Call::ListOff(reply) => {
                let _ = reply.send(self.off_rules.list(unix_time()));
            }
            Call::AddTaps(request, reply) => self.add_taps(request, reply),
            Call::DelTaps(reply) => self.del_taps(reply),
            Call::Qos(reply) => {
                let _ = reply.send(self.qos_status());
            }
            Call::SetQos(table, reply) => {
                let _ = reply.send(self.set_qos(table));
            }
            Call::DelQos(removal, reply) => {
                let _ = reply.send(self.remove_qos(&removal));
            }
        }
    }

    /// Lets the rules of `shunt off` take effect. Returns their number, and a job that keeps them across a restart.
    fn apply_off(&mut self) -> Result<(u64, Job<()>), Failure> {
        self.enforce_off().map_err(internal)?;
        let file = self.off_rules.file();
        Ok((self.off_rules.matches().len() as u64, Job::new(move || file.write())))
    }

    fn port_engines(&self) -> HashMap<u32, PortEngine> {
        let engine = |(link, view): (&Link, &PortView)| {
            let port = PortEngine {
                name: link.name.clone(),
                sends: self.engine_in_use(view.setting),
                reason: view.reason.clone(),
                program: engine_of_program(&self.plane, link.ifindex),
                before_tc: engine_before_tc(&self.plane, link.ifindex),
            };
            (link.ifindex, port)
        };
        self.core.ports().map(engine).collect()
    }

    /// Adds a client of `shunt watch`. The first one gets the ends of connections, too.
    fn watch(&mut self) -> Result<broadcast::Receiver<WatchEvent>, shunt_bpf::Error> {
        let events = self.trace_stream.subscribe(&self.plane)?;
        if let Some(usage) = &self.usage {
            usage.watch(self.trace_stream.clients());
        }
        Ok(events)
    }

    pub(super) fn record_all_counters(&mut self) {
        let ports: Vec<u32> = self.core.ports().map(|(link, _)| link.ifindex).collect();
        for ifindex in ports {
            self.record_counters(ifindex);
        }
    }

    fn metrics_source(&mut self) -> MetricsSource {
        self.record_all_counters();
        MetricsSource {
            status: status::collect(self),
            ports: self.port_counters.by_name(),
            queues: self.qos_status(),
            hosts: self.host_totals(),
            started_at: self.started_at,
        }
    }
}
