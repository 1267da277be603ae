//! The text of `shunt link`.

use crate::render::{Answer, Format, Text, columns::align, json, json_line, units};
use serde::{Deserialize, Serialize};
use shunt_inspect::link::{Applied, Link, Rate};

/// A port, and its rates.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LinkScreen {
    #[serde(flatten)]
    pub(crate) link: Link,
    /// The time that the rates cover.
    pub(crate) seconds: f64,
    pub(crate) rates: Vec<Rate>,
    /// Whether only the rates are shown as text, because the rest was shown before.
    #[serde(skip)]
    pub(crate) rates_only: bool,
}

/// Settings that were changed.
#[derive(Debug, Serialize)]
pub(crate) struct LinkChange {
    pub(crate) port: String,
    pub(crate) applied: Vec<Applied>,
    /// The command that undoes the change; none if nothing changed.
    pub(crate) undo: Option<String>,
}

/// Traffic itself, whose rates are shown first.
const TRAFFIC: [&str; 4] = ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes"];

/// Ports, each with its screen.
#[derive(Debug)]
pub(crate) struct LinkScreens {
    pub(crate) screens: Vec<LinkScreen>,
    /// Whether more answers follow.
    pub(crate) more: bool,
}

impl Answer for LinkScreens {
    fn text(&self, format: Format) -> String {
        if format.brief { brief(&self.screens) } else { describe(&self.screens, format.verbose) }
    }

    fn json(&self) -> serde_json::Result<String> {
        if self.more { json_line(&self.screens) } else { json(&self.screens) }
    }
}

impl Text for LinkChange {
    fn text(&self, _: Format) -> String {
        describe_change(self)
    }
}

fn describe(screens: &[LinkScreen], verbose: bool) -> String {
    let texts: Vec<String> = screens.iter().map(|screen| one(screen, verbose)).collect();
    texts.join("\n")
}

fn describe_change(change: &LinkChange) -> String {
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or("unknown".to_owned());
    let line = |one: &Applied| match &one.after {
        _ if one.before == one.after => {
            format!("{} {}: {} as before\n", one.group, one.name, or_unknown(&one.after))
        }
        _ => {
            format!("{} {}: {} -> {}\n", one.group, one.name, or_unknown(&one.before), or_unknown(&one.after))
        }
    };
    let lines: String = change.applied.iter().map(line).collect();
    match &change.undo {
        Some(command) => format!("{lines}to undo it: {command}\n"),
        None => format!("{lines}nothing changed\n"),
    }
}

fn one(screen: &LinkScreen, verbose: bool) -> String {
    let indented = |rows: Vec<(String, String)>| {
        let rows = rows.into_iter().map(|(name, text)| vec![format!("  {name}"), text]);
        align("<<", &rows.collect::<Vec<_>>())
    };
    let rates = indented(rates(screen));
    if screen.rates_only {
        return format!("{} over {:.1} s\n{rates}", screen.link.nic.name, screen.seconds);
    }
    let settings = indented(settings(screen, verbose));
    format!("{}\n{settings}  rates over {:.1} s\n{rates}", head(screen), screen.seconds)
}

/// The port, its driver and its MTU.
pub(crate) fn head(screen: &LinkScreen) -> String {
    let nic = &screen.link.nic;
    let driver = nic.driver.as_deref().unwrap_or("driver unknown");
    format!("{} ({driver}), MTU {}", nic.name, nic.mtu.unwrap_or(0))
}

/// What is set, by name.
pub(crate) fn settings(screen: &LinkScreen, verbose: bool) -> Vec<(String, String)> {
    let link = &screen.link;
    let qdiscs = if link.qdiscs.is_empty() { lacking(link, "qdisc") } else { link.qdiscs.join(", ") };
    let fec = link.fec.as_ref().map(|fec| {
        format!("{}; {} blocks corrected, {} not", fec.active.join(" "), fec.corrected, fec.uncorrectable)
    });
    let signal = link.sqi.as_ref().map(|sqi| format!("SQI {} of {}", sqi.now, sqi.max));
    // Few drivers have these, so they are not missed.
    let rare = [("FEC", fec), ("signal", signal)].map(|(name, text)| Some((name, text?)));
    [
        ("link", state(link)),
        ("modes", modes(link)),
        ("pause", pause(screen)),
        ("rings", rings(link)),
        ("coalescing", named(link, "coalescing", &link.coalesce)),
        ("channels", named(link, "channels", &link.channels)),
        ("offloads", offloads(link, verbose)),
        ("EEE", link.eee.clone().unwrap_or_else(|| lacking(link, "eee"))),
        ("queues", queues(link)),
        ("interrupts", irqs(link)),
        ("NAPI", napi(link)),
        ("qdisc", qdiscs),
    ]
    .into_iter()
    .chain(rare.into_iter().flatten())
    .map(|(name, text)| (name.to_owned(), text))
    .collect()
}

/// One line for each port.
fn brief(screens: &[LinkScreen]) -> String {
    let row = |screen: &LinkScreen| {
        let nic = &screen.link.nic;
        vec![nic.name.clone(), nic.driver.clone().unwrap_or_else(|| "-".to_owned()), state(&screen.link)]
    };
    align("<", &screens.iter().map(row).collect::<Vec<_>>())
}

fn lacking(link: &Link, what: &str) -> String {
    link.lacking.get(what).map_or("unknown".to_owned(), |why| format!("- ({why})"))
}

fn state(link: &Link) -> String {
    if !link.up {
        return "the port is down; ip link set it up".to_owned();
    }
    if !link.carrier {
        return "no carrier".to_owned();
    }
    let speed = link
        .nic
        .speed_mbps
        .map_or("up, virtual or of unknown speed".to_owned(), |mbps| format!("up, {mbps} Mbit/s"));
    let duplex = link.duplex.as_ref().map_or(String::new(), |duplex| format!(", {duplex} duplex"));
    let autoneg =
        link.autoneg.map_or("", |on| if on { ", autonegotiation on" } else { ", autonegotiation off" });
    format!("{speed}{duplex}{autoneg}")
}

fn modes(link: &Link) -> String {
    if link.advertised.is_empty() && link.partner.is_empty() {
        return lacking(link, "link modes");
    }
    let list = |modes: &[String]| if modes.is_empty() { "unknown".to_owned() } else { modes.join(" ") };
    let source = if link.partner_by_mdio { ", read from the PHY" } else { "" };
    format!("we offer {}; the partner offers {}{source}", list(&link.advertised), list(&link.partner))
}

fn pause(screen: &LinkScreen) -> String {
    let link = &screen.link;
    let Some(pause) = &link.pause else { return lacking(link, "pause") };
    let on = |on| if on { "on" } else { "off" };
    let partner = match link.partner_pauses() {
        Some(true) => "the partner offers it",
        Some(false) => "the partner does not offer it",
        None => "the partner's offer is unknown",
    };
    let count =
        |name: &str| link.counters.get(name).map_or(String::new(), |count| format!(", {name} {count}"));
    format!(
        "receive {}, send {}, {}; {partner}{}{}",
        on(pause.rx),
        on(pause.tx),
        if pause.autoneg { "negotiated" } else { "not negotiated" },
        count("rx_pause_frames"),
        count("tx_pause_frames")
    )
}

fn rings(link: &Link) -> String {
    let Some(rings) = &link.rings else { return lacking(link, "rings") };
    let one = |name: &str, now: Option<u32>, max: Option<u32>| {
        Some(format!("{name} {} of {}", now?, max.map_or("?".to_owned(), |max| max.to_string())))
    };
    let both = [one("rx", rings.rx, rings.rx_max), one("tx", rings.tx, rings.tx_max)];
    both.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn named(link: &Link, what: &str, values: &std::collections::BTreeMap<String, u32>) -> String {
    match values.is_empty() {
        true => lacking(link, what),
        false => values.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", "),
    }
}

fn offloads(link: &Link, verbose: bool) -> String {
    if link.offloads.is_empty() {
        return lacking(link, "offloads");
    }
    let names = |on: bool| {
        let some =
            link.offloads.iter().filter(|(_, offload)| offload.on == on && (on || verbose || !offload.fixed));
        some.map(|(name, offload)| format!("{name}{}", if offload.fixed { " (fixed)" } else { "" }))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let off = names(false);
    format!("on: {}; off: {}", names(true), if off.is_empty() { "none that could be on" } else { &off })
}

fn queues(link: &Link) -> String {
    let spread =
        |masks: &[String]| masks.iter().any(|mask| mask.chars().any(|c| c.is_ascii_hexdigit() && c != '0'));
    let mut text = format!("{} receive, {} transmit", link.queues.rx, link.queues.tx);
    if spread(&link.queues.rps) {
        text += &format!(", RPS {}", link.queues.rps.join(" "));
    }
    if spread(&link.queues.xps) {
        text += &format!(", XPS {}", link.queues.xps.join(" "));
    }
    text
}

fn irqs(link: &Link) -> String {
    if link.irqs.is_empty() {
        return lacking(link, "interrupts");
    }
    let one = |irq: &shunt_inspect::link::Irq| {
        let on = if irq.effective.is_empty() { &irq.affinity } else { &irq.effective };
        format!("{} ({}) on CPU {on}", irq.number, irq.name)
    };
    link.irqs.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn napi(link: &Link) -> String {
    let napi = &link.napi;
    let mut parts = vec![match napi.threaded {
        Some(true) => "in threads".to_owned(),
        Some(false) => "in softirqs".to_owned(),
        None => "threads unknown".to_owned(),
    }];
    parts.extend(napi.budget.map(|budget| format!("budget {budget} packets")));
    parts.extend(napi.budget_usecs.map(|usecs| format!("{usecs} us")));
    parts.extend(
        napi.defer_hard_irqs
            .filter(|times| *times > 0)
            .map(|times| format!("interrupts deferred {times} times")),
    );
    parts.extend(
        napi.gro_flush_timeout_ns.filter(|ns| *ns > 0).map(|ns| format!("GRO flushed after {ns} ns")),
    );
    parts.join(", ")
}

/// Packets and bytes of the port; then troubles; then interrupts and what the CPUs received.
pub(crate) fn rates(screen: &LinkScreen) -> Vec<(String, String)> {
    let port = &screen.link.nic.name;
    let of = |name: &str| {
        screen
            .rates
            .iter()
            .find(|rate| rate.device == *port && rate.counter == name)
            .map_or(0.0, |rate| rate.per_second)
    };
    let direction = |name: &str| {
        format!(
            "{}, {}",
            units::packets_per_second(of(&format!("{name}_packets")).round() as u64),
            units::bits_per_second((of(&format!("{name}_bytes")) * 8.0).round() as u64)
        )
    };
    let mut rows = vec![("received".to_owned(), direction("rx")), ("sent".to_owned(), direction("tx"))];
    let rest = screen.rates.iter().filter(|rate| !TRAFFIC.contains(&rate.counter.as_str()));
    let shown = rest.filter(|rate| rate.trouble || rate.device != *port);
    rows.extend(shown.map(|rate| {
        let mark = if rate.trouble { "  trouble" } else { "" };
        (format!("{} {}", rate.device, rate.counter), format!("{:.1}/s{mark}", rate.per_second))
    }));
    rows
}
