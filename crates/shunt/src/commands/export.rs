//! `shunt export`: the connections of the fast path for other programs, as NDJSON or IPFIX.

use super::{
    arguments::{SHORTEST_INTERVAL, endpoint, time_from},
    connections::ConnectionArgs,
};
use crate::{
    command::{Command, Context},
    failure::{unwritable, usage},
    output::Show,
    render::{Answer, Format},
};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use shunt_api::{Connection, Direction, DirectionName, Failure, Proto};
use shunt_wire::ipfix::{Exporter, FlowRecord};
use std::{
    fs::File,
    io::{self, Write},
    net::{SocketAddr, UdpSocket},
    path::PathBuf,
    time::{Duration, SystemTime},
};
use tokio::time::{Instant, sleep_until};

/// Write the connections on the fast path for other programs: as NDJSON, or as IPFIX for a collector.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    connections: ConnectionArgs,
    /// ndjson: one line of JSON for each connection, as `shunt flows --json` has them, with the time; ipfix: RFC 7011,
    /// one record for each direction.
    #[arg(long, value_enum, default_value = "ndjson")]
    format: ExportFormat,
    /// Send IPFIX to this collector by UDP, instead of to standard output; the usual port is 4739.
    #[arg(long, value_name = "ADDR:PORT", value_parser = endpoint, conflicts_with = "output")]
    to: Option<SocketAddr>,
    /// Write to this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Export again and again at this interval, until Ctrl-C; at least 100ms. The counters are those since each flow
    /// was learned.
    #[arg(long, value_name = "TIME", value_parser = time_from(SHORTEST_INTERVAL))]
    every: Option<Duration>,
    /// The observation domain of IPFIX, which tells several exporters at one collector apart.
    #[arg(long, value_name = "N", default_value_t = 1)]
    domain: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    Ndjson,
    Ipfix,
}

/// Where the bytes go.
enum Sink<'s> {
    Output(Show<'s>),
    File(PathBuf, File),
    Collector(SocketAddr, UdpSocket),
}

impl<'s> Sink<'s> {
    fn open(typed: &ExportArgs, show: Show<'s>) -> Result<Self, Failure> {
        if let Some(path) = &typed.output {
            let file = File::create(path).map_err(|error| unwritable(path, &error))?;
            return Ok(Self::File(path.clone(), file));
        }
        let Some(to) = typed.to else { return Ok(Self::Output(show)) };
        if typed.format != ExportFormat::Ipfix {
            return Err(usage("--to needs --format ipfix: collectors do not read NDJSON"));
        }
        let any: SocketAddr = if to.is_ipv6() { ([0_u16; 8], 0).into() } else { ([0_u8; 4], 0).into() };
        let opened = UdpSocket::bind(any).and_then(|socket| socket.connect(to).map(|()| socket));
        opened.map(|socket| Self::Collector(to, socket)).map_err(|error| usage(format!("--to {to}: {error}")))
    }

    fn write(&mut self, message: Vec<u8>) -> anyhow::Result<()> {
        match self {
            Self::Output(show) => show(&Exported(message)),
            Self::File(path, file) => {
                Ok(file.write_all(&message).map_err(|error| unwritable(path, &error))?)
            }
            // A collector that is away answers by ICMP, which fails the next send.
            Self::Collector(to, socket) => match socket.send(&message) {
                Err(error) if error.kind() != std::io::ErrorKind::ConnectionRefused => {
                    Err(error).with_context(|| format!("cannot send to {to}"))
                }
                _ => Ok(()),
            },
        }
    }
}

/// Bytes for standard output, whatever the format of the output.
#[derive(Debug)]
struct Exported(Vec<u8>);

impl Answer for Exported {
    fn text(&self, _: Format) -> String {
        String::new()
    }

    fn json(&self) -> serde_json::Result<String> {
        Ok(String::new())
    }

    fn render(&self, _: Format) -> io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }
}

impl Command for ExportArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt export]
        shunt export # the connections, one line of JSON each
        shunt export --format ipfix --to 192.0.2.9:4739 --every 10s # to a collector, until Ctrl-C
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let selections = plan.connections.named()?.look_up(&context.client).await?;
        let mut sink = Sink::open(&plan, show)?;
        let mut exporter = Exporter::new(plan.domain);
        loop {
            let next = plan.every.map(|every| Instant::now() + every);
            let mut connections: Vec<Connection> = context.client.get("/v1/flows?rate_over_ms=0").await?;
            connections
                .retain(|one| selections.iter().any(|which| which.has(one.proto, &[one.orig, one.reply])));
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            match plan.format {
                ExportFormat::Ndjson => sink.write(ndjson(&connections, now)?)?,
                ExportFormat::Ipfix => {
                    let records: Vec<FlowRecord> =
                        connections.iter().flat_map(|connection| records(connection, now)).collect();
                    for message in exporter.messages(&records, now.as_secs() as u32) {
                        sink.write(message)?;
                    }
                }
            }
            let Some(next) = next else { return Ok(()) };
            sleep_until(next).await;
        }
    }
}

/// The connections with the time of the export, one for each line.
fn ndjson(connections: &[Connection], now: Duration) -> serde_json::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for connection in connections {
        let mut value = serde_json::to_value(connection)?;
        value["at_ms"] = (now.as_millis() as u64).into();
        serde_json::to_writer(&mut lines, &value)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

fn records(connection: &Connection, now: Duration) -> impl Iterator<Item = FlowRecord> + '_ {
    let before = move |seconds: u64| (now.as_millis() as u64).saturating_sub(seconds * 1000);
    connection.directions.iter().map(move |direction| {
        let Direction { dir, tuple, new, packets, bytes, age_s, idle_s, .. } = direction;
        FlowRecord {
            source: (tuple.src, tuple.sport),
            destination: (tuple.dst, tuple.dport),
            new_source: (new.src, new.sport),
            new_destination: (new.dst, new.dport),
            protocol: match connection.proto {
                Proto::Tcp => 6,
                Proto::Udp => 17,
            },
            reply: *dir == DirectionName::Reply,
            packets: *packets,
            bytes: *bytes,
            start_ms: before(*age_s),
            end_ms: before(*idle_s),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::flows::sample::{tcp, udp6};

    #[test]
    fn each_direction_is_a_record_and_each_connection_a_line() {
        let (all, now) = (vec![tcp(), udp6()], Duration::from_secs(100_000));
        let records: Vec<FlowRecord> = all.iter().flat_map(|one| records(one, now)).collect();
        assert_eq!(records.len(), all.iter().map(|one| one.directions.len()).sum::<usize>());
        let (first, flow) = (&records[0], &all[0].directions[0]);
        assert_eq!((first.packets, first.bytes, first.reply), (flow.packets, flow.bytes, false));
        assert_eq!(first.start_ms, 100_000_000 - flow.age_s * 1000);
        assert_eq!(first.new_source, (flow.new.src, flow.new.sport));
        let lines = String::from_utf8(ndjson(&all, now).unwrap()).unwrap();
        assert_eq!(lines.lines().count(), all.len());
        let line: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!(line["at_ms"], 100_000_000_u64);
        let connection: Connection = serde_json::from_value(line).unwrap();
        assert_eq!(connection, all[0]);
    }
}
