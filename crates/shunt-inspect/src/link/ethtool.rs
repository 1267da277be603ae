//! Reads settings by ethtool netlink, with the crate `ethtool`. EEE, which the crate lacks, comes from the program.

use super::{Fec, Link, Offload, Rings, Sqi};
use ::ethtool::{
    EthtoolAttr, EthtoolChannelAttr, EthtoolCoalesceAttr, EthtoolError, EthtoolFeatureAttr, EthtoolHandle,
    EthtoolLinkModeAttr, EthtoolLinkModeDuplex, EthtoolMessage, EthtoolPauseAttr, EthtoolRingAttr,
    new_connection,
};
use futures_util::{Stream, StreamExt};
use nix::libc;
use std::{
    pin::pin,
    process::{Command, Stdio},
    time::Duration,
};
use tokio::time::timeout;

/// The kernel answers at once unless a driver hangs.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Fills in the settings that the driver offers, and adds the others to `lacking`.
pub(super) async fn read(link: &mut Link, port: &str) {
    let (connection, mut handle, _) = match new_connection() {
        Ok(opened) => opened,
        Err(error) => {
            link.lacking.insert("settings".to_owned(), format!("cannot open a netlink socket: {error}"));
            return;
        }
    };
    let connection = tokio::spawn(connection);
    if timeout(ANSWER_TIME, read_all(link, &mut handle, port)).await.is_err() {
        link.lacking.insert("settings".to_owned(), "the driver did not answer within 5 s".to_owned());
    }
    connection.abort();
    link.fec = program(&["--json", "-I", "--show-fec", port]).ok().and_then(|text| fec(&text));
    if let Ok(text) = program(&[port]) {
        link.sqi = sqi(&text);
        // The crate finds no modes here: the kernel sends those of the partner without a mask.
        if link.partner.is_empty() {
            link.partner = partner(&text);
        }
    }
    match eee(port) {
        Ok(state) => link.eee = Some(state),
        Err(why) => drop(link.lacking.insert("eee".to_owned(), why)),
    }
}

async fn read_all(link: &mut Link, handle: &mut EthtoolHandle, port: &str) {
    let name = Some(port);
    let modes = attributes(handle.link_mode().get(name).execute().await).await;
    link.take("link modes", modes, Link::link_mode);
    let pause = attributes(handle.pause().get(name).execute().await).await;
    link.take("pause", pause, Link::pause);
    let rings = attributes(handle.ring().get(name).execute().await).await;
    link.take("rings", rings, Link::ring);
    let coalesce = attributes(handle.coalesce().get(name).execute().await).await;
    link.take("coalescing", coalesce, Link::coalesce);
    let channels = attributes(handle.channel().get(name).execute().await).await;
    link.take("channels", channels, Link::channel);
    let features = attributes(handle.feature().get(name).execute().await).await;
    link.take("offloads", features, Link::feature);
}

/// The attributes of the answers, or why there are none.
async fn attributes<S>(answers: Result<S, EthtoolError>) -> Result<Vec<EthtoolAttr>, String>
where
    S: Stream<Item = Result<netlink_packet_generic::GenlMessage<EthtoolMessage>, EthtoolError>>,
{
    let mut answers = pin!(answers.map_err(|error| error.to_string())?);
    let mut all = Vec::new();
    while let Some(answer) = answers.next().await {
        all.extend(answer.map_err(|error| reason(&error))?.payload.nlas);
    }
    Ok(all)
}

fn reason(error: &EthtoolError) -> String {
    match error {
        EthtoolError::NetlinkError(message) => match -message.raw_code() {
            libc::EOPNOTSUPP => "the driver does not offer it".to_owned(),
            libc::EPERM => "this needs root".to_owned(),
            _ => message.to_io().to_string(),
        },
        other => other.to_string(),
    }
}

impl Link {
    fn take(
        &mut self,
        what: &str,
        attributes: Result<Vec<EthtoolAttr>, String>,
        read: fn(&mut Self, EthtoolAttr),
    ) {
        match attributes {
            Ok(all) => all.into_iter().for_each(|one| read(self, one)),
            Err(why) => drop(self.lacking.insert(what.to_owned(), why)),
        }
    }

    fn link_mode(&mut self, attribute: EthtoolAttr) {
        let EthtoolAttr::LinkMode(attribute) = attribute else { return };
        match attribute {
            EthtoolLinkModeAttr::Autoneg(on) => self.autoneg = Some(on),
            EthtoolLinkModeAttr::Ours(modes) => self.advertised = modes,
            EthtoolLinkModeAttr::Peer(modes) => self.partner = modes,
            // A virtual device reports a duplex without having a line.
            EthtoolLinkModeAttr::Duplex(duplex) if self.nic.speed_mbps.is_some() => {
                self.duplex = match duplex {
                    EthtoolLinkModeDuplex::Half => Some("half".to_owned()),
                    EthtoolLinkModeDuplex::Full => Some("full".to_owned()),
                    _ => None,
                };
            }
            _ => {}
        }
    }

    fn pause(&mut self, attribute: EthtoolAttr) {
        let EthtoolAttr::Pause(attribute) = attribute else { return };
        let pause = self.pause.get_or_insert_default();
        match attribute {
            EthtoolPauseAttr::AutoNeg(on) => pause.autoneg = on,
            EthtoolPauseAttr::Rx(on) => pause.rx = on,
            EthtoolPauseAttr::Tx(on) => pause.tx = on,
            _ => {}
        }
    }

    fn ring(&mut self, attribute: EthtoolAttr) {
        let EthtoolAttr::Ring(attribute) = attribute else { return };
        let rings = self.rings.get_or_insert_with(Rings::default);
        match attribute {
            EthtoolRingAttr::Rx(count) => rings.rx = Some(count),
            EthtoolRingAttr::RxMax(count) => rings.rx_max = Some(count),
            EthtoolRingAttr::Tx(count) => rings.tx = Some(count),
            EthtoolRingAttr::TxMax(count) => rings.tx_max = Some(count),
            _ => {}
        }
    }

    fn coalesce(&mut self, attribute: EthtoolAttr) {
        let EthtoolAttr::Coalesce(attribute) = attribute else { return };
        let (name, value) = match attribute {
            EthtoolCoalesceAttr::RxUsecs(value) => ("rx-usecs", value),
            EthtoolCoalesceAttr::RxMaxFrames(value) => ("rx-frames", value),
            EthtoolCoalesceAttr::TxUsecs(value) => ("tx-usecs", value),
            EthtoolCoalesceAttr::TxMaxFrames(value) => ("tx-frames", value),
            EthtoolCoalesceAttr::UseAdaptiveRx(on) => ("adaptive-rx", on.into()),
            EthtoolCoalesceAttr::UseAdaptiveTx(on) => ("adaptive-tx", on.into()),
            _ => return,
        };
        self.coalesce.insert(name.to_owned(), value);
    }

    fn channel(&mut self, attribute: EthtoolAttr) {
        let EthtoolAttr::Channel(attribute) = attribute else { return };
        let (name, value) = match attribute {
            EthtoolChannelAttr::RxMax(value) => ("rx-max", value),
            EthtoolChannelAttr::TxMax(value) => ("tx-max", value),
            EthtoolChannelAttr::CombinedMax(value) => ("combined-max", value),
            EthtoolChannelAttr::RxCount(value) => ("rx", value),
            EthtoolChannelAttr::TxCount(value) => ("tx", value),
            EthtoolChannelAttr::CombinedCount(value) => ("combined", value),
            _ => return,
        };
        self.channels.insert(name.to_owned(), value);
    }

    fn feature(&mut self, attribute: EthtoolAttr) {
        let EthtoolAttr::Feature(attribute) = attribute else { return };
        match attribute {
            // Features missing in this bit set cannot be changed.
            EthtoolFeatureAttr::Hw(bits) => {
                for bit in bits {
                    self.offloads.entry(bit.name).or_insert(Offload { on: false, fixed: !bit.value }).fixed =
                        !bit.value;
                }
            }
            EthtoolFeatureAttr::Active(bits) => {
                for bit in bits {
                    self.offloads.entry(bit.name).or_insert(Offload { on: false, fixed: true }).on =
                        bit.value;
                }
            }
            EthtoolFeatureAttr::NoChange(bits) => {
                for bit in bits.into_iter().filter(|bit| bit.value) {
                    self.offloads.entry(bit.name).or_default().fixed = true;
                }
            }
            _ => {}
        }
    }
}

/// What `ethtool` prints with these arguments.
fn program(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ethtool").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run ethtool: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The value after "EEE status:" in the output of `ethtool --show-eee`.
fn eee(port: &str) -> Result<String, String> {
    let text = program(&["--show-eee", port])?;
    let status = text.lines().find_map(|line| line.trim().strip_prefix("EEE status:"));
    match status.map(str::trim) {
        Some("not supported") | None => Err("the driver does not offer it".to_owned()),
        Some(status) => Ok(status.to_owned()),
    }
}

/// The JSON of `ethtool --json -I --show-fec`.
fn fec(text: &str) -> Option<Fec> {
    let all: serde_json::Value = serde_json::from_str(text).ok()?;
    let port = all.get(0)?;
    let active = port["active"].as_array()?.iter().filter_map(|code| code.as_str().map(str::to_owned));
    // With several lanes, a count has a total.
    let count = |name: &str| {
        let count = &port["statistics"][name];
        count.as_u64().or_else(|| count["total"].as_u64()).unwrap_or(0)
    };
    let (corrected, uncorrectable) = (count("corrected_blocks"), count("uncorrectable_blocks"));
    Some(Fec { active: active.collect(), corrected, uncorrectable })
}

/// The line `SQI: 5/7` of `ethtool PORT`.
fn sqi(text: &str) -> Option<Sqi> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("SQI:"))?;
    let (now, max) = line.trim().split_once('/')?;
    Some(Sqi { now: now.trim().parse().ok()?, max: max.trim().parse().ok()? })
}

/// What the partner advertises, in the lines of `ethtool PORT`; empty if nothing is known.
fn partner(text: &str) -> Vec<String> {
    const LABEL: &str = "Link partner advertised ";
    let mut modes = Vec::new();
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with(LABEL)).peekable();
    while let Some((what, value)) = lines.next().and_then(|line| line.strip_prefix(LABEL)?.split_once(':')) {
        let names: &[&str] = match (what, value.trim()) {
            ("pause frame use", "Symmetric") => &["Pause"],
            ("pause frame use", "Symmetric Receive-only") => &["Pause", "Asym_Pause"],
            ("pause frame use", "Transmit-only") => &["Asym_Pause"],
            ("auto-negotiation", "Yes") => &["Autoneg"],
            ("link modes", value) => {
                modes
                    .extend(value.split_whitespace().filter(|name| name.contains("base")).map(str::to_owned));
                // The list may go on in lines without a label.
                while let Some(more) = lines.next_if(|line| !line.contains(':')) {
                    modes.extend(more.split_whitespace().map(str::to_owned));
                }
                &[]
            }
            _ => &[],
        };
        modes.extend(names.iter().map(|name| (*name).to_owned()));
    }
    modes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partner_offers_what_ethtool_prints() {
        let text = "\tAdvertised FEC modes: Not reported\n\
            \tLink partner advertised link modes:  10baseT/Half 10baseT/Full\n\
            \t                                     1000baseT/Full\n\
            \tLink partner advertised pause frame use: Symmetric\n\
            \tLink partner advertised auto-negotiation: Yes\n\
            \tLink partner advertised FEC modes: Not reported\n\
            \tSpeed: 1000Mb/s\n";
        let offered = ["10baseT/Half", "10baseT/Full", "1000baseT/Full", "Pause", "Autoneg"];
        assert_eq!(partner(text), offered);
        let unknown = "\tLink partner advertised link modes:  Not reported\n\
            \tLink partner advertised pause frame use: No\n\
            \tLink partner advertised auto-negotiation: No\n";
        assert_eq!(partner(unknown), [""; 0]);
        assert_eq!(partner("\tSpeed: 10000Mb/s\n"), [""; 0]);
    }

    #[test]
    fn error_correction_and_signal_quality_are_read_as_ethtool_prints_them() {
        let text = r#"[{"ifname": "eth0", "config": ["Auto"], "active": ["RS"],
            "statistics": {"corrected_blocks": {"total": 12, "lanes": [5, 7]}, "uncorrectable_blocks": 3}}]"#;
        let expected = Fec { active: vec!["RS".to_owned()], corrected: 12, uncorrectable: 3 };
        assert_eq!(fec(text), Some(expected));
        assert_eq!(fec("netlink error: Operation not supported"), None);
        assert_eq!(sqi("\tLink detected: yes\n\tSQI: 5/7\n"), Some(Sqi { now: 5, max: 7 }));
        assert_eq!(sqi("\tLink detected: yes\n"), None);
    }
}
