//! `shunt qos`: the queues of ports that the external engine serves.

pub(crate) mod view;

use crate::{
    client::{candidates, control::Client},
    command::{Command, Context},
    failure::{bad_file, no_device, unreadable, usage},
    output::Show,
    render::Counted,
};
use clap::{ArgGroup, Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use hyper::Method;
use nix::net::if_::if_nametoindex;
use shunt_api::{
    BitRate, Bytes, Config, Engine, Failure, FailureCode, PortQos, QosRemoval, QosStatus, QosTable, Status,
    check_qos,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Show and change the queues of ports that the external engine serves: shaper, classes, policer.
#[derive(Debug, Args)]
pub(crate) struct QosArgs {
    #[command(subcommand)]
    command: Option<QosCommand>,
}

#[derive(Debug, Subcommand)]
enum QosCommand {
    /// Show the queues of all ports, or of some, with their counters.
    #[command(visible_alias = "list")]
    Show {
        /// The ports to show; all if none is named.
        #[arg(value_name = "PORT", add = ArgValueCandidates::new(candidates::devices))]
        ports: Vec<String>,
    },
    /// Change the shaper or the policer of a port. Its classes stay as they are.
    ///
    /// The change lasts until the daemon ends; the configuration file is not written.
    Set(SetArgs),
    /// Set the queues of the ports that a file names.
    ///
    /// The file has tables [qos.PORT] as in the configuration file, and may be that file. Other ports keep their
    /// queues. The change lasts until the daemon ends.
    Load {
        /// A TOML file with [qos.PORT].
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Remove the queues of ports. Packets that wait leave first.
    Del {
        /// The ports that are to have no queues.
        #[arg(value_name = "PORT", required = true, add = ArgValueCandidates::new(candidates::devices))]
        ports: Vec<String>,
    },
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true)
    .args(["rate", "burst", "overhead", "police", "police_burst"]))]
pub(crate) struct SetArgs {
    /// The port whose queues change.
    #[arg(value_name = "PORT", add = ArgValueCandidates::new(candidates::devices))]
    port: String,
    /// The rate of the shaper in bit/s of frames, such as 100M; 0 does not shape.
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// The number of bytes that the shaper lets leave at once after a pause, such as 16k.
    #[arg(long, value_name = "BYTES")]
    burst: Option<Bytes>,
    /// The number of bytes that framing on the line adds to each frame; may be negative.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    overhead: Option<i32>,
    /// The rate above which arriving packets are dropped, such as 200M; 0 lets all in.
    #[arg(long, value_name = "RATE")]
    police: Option<BitRate>,
    /// The number of bytes that the policer lets in at once after a pause, such as 128k.
    #[arg(long, value_name = "BYTES")]
    police_burst: Option<Bytes>,
}

/// A resolved `shunt qos`.
#[derive(Debug)]
pub(crate) enum QosPlan {
    Show(Vec<String>),
    Set(SetArgs),
    Load(QosTable),
    Remove(QosRemoval),
}

impl Command for QosArgs {
    type Plan = QosPlan;
    const EXAMPLES: &str = "
        [shunt qos]
        shunt qos # the queues of all ports, with delays and drops
        shunt qos set wan0 --rate 95M # shape what leaves by wan0
        [shunt qos show]
        shunt qos show wan0 # the queues of one port
        [shunt qos set]
        shunt qos set wan0 --rate 50M --overhead 18 # 50 Mbit/s with 18 bytes of framing for each frame
        shunt qos set wan0 --police 200M # drop what arrives faster than 200 Mbit/s
        [shunt qos load]
        shunt qos load /etc/shunt/shunt.toml # the queues of the configuration file, again
        [shunt qos del]
        shunt qos del wan0 # no queues, no shaper, no policer
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<QosPlan> {
        Ok(QosPlan::resolve(self)?)
    }

    async fn run(plan: QosPlan, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let client = &context.client;
        let set = |count| Counted::new(count, "port", |ports| format!("queues of {ports} set"));
        let answer = match plan {
            QosPlan::Show(ports) => return show(&queues(client, &ports).await?),
            QosPlan::Set(change) => {
                let have: Vec<QosStatus> = client.get(PATH).await?;
                let have =
                    have.into_iter().find(|status| status.port == change.port).map(|status| status.qos);
                let table = QosTable::from([(change.port.clone(), change.change(have.unwrap_or_default()))]);
                check_qos(&table).map_err(usage)?;
                set(client.send(Method::POST, PATH, &table).await?)
            }
            QosPlan::Load(table) => set(client.send(Method::POST, PATH, &table).await?),
            QosPlan::Remove(removal) => {
                let count = client.send(Method::DELETE, PATH, &removal).await?;
                Counted::new(count, "port", |ports| format!("queues of {ports} removed"))
            }
        };
        show(&answer)
    }
}

impl QosPlan {
    fn resolve(typed: QosArgs) -> Result<Self, Failure> {
        Ok(match typed.command {
            None => Self::Show(Vec::new()),
            Some(QosCommand::Show { ports }) => Self::Show(ports),
            Some(QosCommand::Set(set)) => Self::Set(set),
            Some(QosCommand::Load { file }) => Self::Load(read_table(&file)?),
            Some(QosCommand::Del { ports }) => Self::Remove(QosRemoval { ports }),
        })
    }
}

const PATH: &str = "/v1/qos";

async fn queues(client: &Client, ports: &[String]) -> anyhow::Result<Vec<QosStatus>> {
    let mut all: Vec<QosStatus> = client.get(PATH).await?;
    if let Some(unknown) = ports.iter().find(|port| all.iter().all(|status| status.port != **port)) {
        if if_nametoindex(unknown.as_str()).is_err() {
            return Err(no_device(unknown).into());
        }
        let status: Status = client.get("/v1/status").await?;
        let engine = status.ports.iter().find(|port| port.name == *unknown).map(|port| port.engine);
        let remedy = match engine {
            Some(Engine::External) => format!("set some with `shunt qos set {unknown} --rate 100M`"),
            Some(engine) => format!(
                "only the external engine has some, and {unknown} uses {engine}; `tc -s qdisc show dev {unknown}` shows \
                 those of Linux"
            ),
            None => "it is not a port of this instance".to_owned(),
        };
        let why = format!("`{unknown}` has no queues: {remedy}");
        return Err(Failure::new(FailureCode::PortMissing, why).into());
    }
    all.retain(|status| ports.is_empty() || ports.contains(&status.port));
    Ok(all)
}

fn read_table(file: &Path) -> Result<QosTable, Failure> {
    let text = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    let table = Config::parse(&text).map_err(|why| bad_file(file, why))?.qos;
    if table.is_empty() {
        return Err(bad_file(file, "it has no table such as [qos.wan0]"));
    }
    Ok(table)
}

impl SetArgs {
    /// The queues of the port with what was typed.
    fn change(&self, have: PortQos) -> PortQos {
        PortQos {
            rate: self.rate.unwrap_or(have.rate),
            burst: self.burst.unwrap_or(have.burst),
            overhead: self.overhead.unwrap_or(have.overhead),
            police: self.police.unwrap_or(have.police),
            police_burst: self.police_burst.unwrap_or(have.police_burst),
            ..have
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    fn resolve(words: &str) -> Result<QosPlan, String> {
        let typed = parse_args::<QosArgs>(words).map_err(|error| error.to_string())?;
        QosPlan::resolve(typed).map_err(|failure| failure.message)
    }

    #[test]
    fn set_changes_what_is_typed_and_keeps_the_rest() {
        let Ok(QosPlan::Set(set)) = resolve("set wan0 --rate 50M --overhead -4") else { panic!("no change") };
        let have = PortQos { rate: BitRate(1_000_000), police: BitRate(9_000_000), ..PortQos::default() };
        let changed = set.change(have.clone());
        assert_eq!(changed, PortQos { rate: BitRate(50_000_000), overhead: -4, ..have });
    }

    #[test]
    fn a_change_without_an_option_and_a_wrong_rate_are_refused() {
        assert!(resolve("set wan0").unwrap_err().contains("required"));
        assert!(resolve("set wan0 --rate fast").unwrap_err().contains("`fast` is not a rate"));
        assert!(resolve("set wan0 --burst 5G").unwrap_err().contains("too large"));
        assert!(resolve("del").unwrap_err().contains("PORT"));
    }

    #[test]
    fn load_takes_the_queues_of_a_configuration_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shunt.toml");
        let load = |text: &str| {
            fs::write(&file, text).unwrap();
            resolve(&format!("load {}", file.display()))
        };
        let Ok(QosPlan::Load(table)) = load("engine = \"external\"\n[qos.wan0]\nrate = \"1M\"\n") else {
            panic!("not read")
        };
        assert_eq!(table["wan0"].rate, BitRate(1_000_000));
        assert!(load("engine = \"tc\"").unwrap_err().ends_with("it has no table such as [qos.wan0]"));
        assert!(
            load("[qos.wan0]\nrat = 1")
                .unwrap_err()
                .contains("line 2: unknown key `rat`; did you mean `rate`?")
        );
    }
}
