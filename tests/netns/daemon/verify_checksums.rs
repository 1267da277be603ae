//! `verify_checksums`: which packets with a wrong checksum are fast, and which go to Linux, which drops them.

use shunt_api::Engine;
use shunt_testkit::{ENGINES, daemon_with, require_root, rulesets, silent_router, stage};
use shunt_wire::{Checksum, Packet};

const NO_PROOF: &str = "reprove = \"30s\"";

/// Whether a packet with a wrong checksum is forwarded: a short one, and a long one.
fn leaves(engine: Engine, setting: &str) -> (bool, bool) {
    match (setting, engine) {
        ("never", _) => (true, true),
        ("always", _) => (false, false),
        // XDP and the external engine do not know which checksums the driver has verified.
        (_, Engine::Xdp | Engine::External) => (true, true),
        (_, Engine::Tc) => (false, true),
    }
}

#[test]
fn wrong_checksums_go_to_linux_as_the_configuration_says() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(rulesets::OPEN);
        for setting in ["never", "auto", "always"] {
            let config = format!("{NO_PROOF}\nverify_checksums = \"{setting}\"");
            let shuntd = daemon_with(&lab, engine, &config);
            for (port, to) in [(4000, lab.wan().at(5000)), (4001, lab.wan().at6(5000))] {
                let stage = stage::Stage::new(lab.lan(), &[lab.wan()]);
                let sized = |bytes: usize| lab.lan().udp_to(port, to).payload(vec![b'x'; bytes]);
                stage.teach(&shuntd, &sized(1000));
                let wrong = |packet: Packet| packet.with_l4_checksum(Checksum::Value(0x1234));
                let (short, long) = leaves(engine, setting);
                for (bytes, leaves) in [(60, short), (1000, long), (999, long)] {
                    let what = format!("{engine}, {setting}, {bytes} bytes to {to}");
                    let before = shuntd.status();
                    assert_eq!(stage.passes(&wrong(sized(bytes))), leaves, "{what}");
                    let now = shuntd.status();
                    let counted =
                        |status: &shunt_api::Status| status.reasons.get("bad-checksum").copied().unwrap_or(0);
                    assert_eq!(counted(&now) - counted(&before), u64::from(!leaves), "{what}: {now:#?}");
                    // The flow stays fast for packets with a right checksum.
                    assert!(stage.passes(&sized(bytes)), "{what}");
                    let fast = shuntd.status().packets.fast;
                    assert_eq!(fast - now.packets.fast, 1, "{what}: {:#?}", shuntd.status());
                }
            }
            shuntd.stop();
        }
    }
}
