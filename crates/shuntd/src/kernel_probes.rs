//! The features of the kernel that the daemon looked for, with what it does without them.

use shunt_api::{Config, Probe, ProbeAnswer};
use shunt_bpf::DataPlane;
use shunt_core::EventSource;

/// A probe; `without` is shown unless the answer is yes.
pub(crate) fn probe(name: &str, answer: impl Into<Answer>, without: &str) -> Probe {
    let Answer(answer) = answer.into();
    let detail = if answer == ProbeAnswer::Yes { String::new() } else { without.to_owned() };
    Probe { name: name.to_owned(), answer, detail }
}

pub(crate) struct Answer(ProbeAnswer);

impl From<bool> for Answer {
    fn from(yes: bool) -> Self {
        Self(if yes { ProbeAnswer::Yes } else { ProbeAnswer::No })
    }
}

impl From<ProbeAnswer> for Answer {
    fn from(answer: ProbeAnswer) -> Self {
        Self(answer)
    }
}

/// The probes of a loaded data plane. `missing` are the sources of changes that the kernel lacks.
pub(crate) fn probes(
    plane: &DataPlane,
    config: &Config,
    missing: &[EventSource],
    tcx: bool,
    tx_drops: Probe,
) -> Vec<Probe> {
    let has_source = |source| !missing.contains(&source);
    vec![
        tcx_probe(tcx),
        probe("conntrack structures", plane.learns() || !config.learn, "only static flows are forwarded"),
        probe(
            "conntrack events",
            plane.has_conntrack_filter() || !config.learn,
            "a deleted connection stays on the fast path until it is proved again",
        ),
        probe(
            "nftables events",
            has_source(EventSource::Nftables),
            "a change of rules takes effect when a flow is proved again",
        ),
        probe(
            "IPsec policy events",
            has_source(EventSource::Xfrm),
            "a change of policies takes effect when a flow is proved again",
        ),
        tx_drops,
        probe("XDP feature events", has_source(EventSource::Netdev), "the engine auto uses tc on all ports"),
    ]
}

pub(crate) fn tcx_probe(tcx: bool) -> Probe {
    probe("tcx", tcx, "clsact filters are used instead")
}

/// Whether frames that XDP redirected and a driver dropped can be counted.
pub(crate) fn tx_drops_probe(answer: impl Into<Answer>, without: &str) -> Probe {
    probe("XDP transmit drops", answer, without)
}
