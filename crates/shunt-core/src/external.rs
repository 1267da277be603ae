//! Which ports the external engine can serve.

use crate::{Link, LinkLayer, network::Network};

/// Why a port without an Ethernet header uses tc.
pub(crate) const NO_ETHERNET: &str = "its packets have no Ethernet header, which XDP needs";

/// The largest MTU: a frame with two VLAN tags must fit the engine's packet memory.
const MTU_MAX: u32 = 1792 - 22;

/// Why a port cannot be served whatever the engine does; `None` if it can. `ours` says whether an XDP program is
/// Shunt's.
pub(crate) fn obstacle(network: &Network, link: &Link, ours: &dyn Fn(u32) -> bool) -> Option<String> {
    if link.layer != LinkLayer::Ethernet {
        return Some(NO_ETHERNET.to_owned());
    }
    let native = network.xdp.get(&link.ifindex).map(|xdp| xdp.native);
    let why = match native {
        None => "the kernel does not say whether its driver has native XDP, which AF_XDP needs".to_owned(),
        Some(false) => "its driver has no native XDP, which AF_XDP needs".to_owned(),
        Some(true) if link.xdp_prog.is_some_and(|prog| !ours(prog)) => {
            "another XDP program is attached to it".to_owned()
        }
        Some(true) if link.mtu > MTU_MAX => {
            format!("its MTU of {} is larger than frames of the external engine hold ({MTU_MAX})", link.mtu)
        }
        Some(true) if network.has_vlans(link.ifindex) || network.filters_vlans(link.ifindex) => {
            "XDP does not see the VLAN tags of the devices on top of it".to_owned()
        }
        // A lost carrier is no reason: some NICs lose it whenever a program is attached.
        Some(true) if !link.up => "it is down".to_owned(),
        Some(true) => {
            return network
                .xdp_refusals
                .get(&link.ifindex)
                .map(|error| format!("its driver refuses the XDP program ({error})"));
        }
    };
    Some(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Action, Cause, Choice, Core, Event, ExternalPorts, ExternalState,
        core::tests::{address, link, native, router, started},
    };
    use shunt_api::{Engine, EngineChoice};
    use std::collections::{BTreeMap, BTreeSet};

    fn ports(core: &Core) -> Vec<(Engine, String, bool)> {
        core.ports()
            .map(|(_, view)| (view.setting.engine, view.reason.clone(), view.setting.xdp_in))
            .collect()
    }

    fn choice() -> Choice {
        Choice { engine: EngineChoice::External, ..Choice::default() }
    }

    fn serve<const N: usize, const M: usize>(ports: [u32; N], copied: [u32; M]) -> Action {
        Action::Serve(ExternalPorts { ports: ports.into(), copied: copied.into() })
    }

    fn serving(ports: &[u32]) -> Event {
        Event::External(ExternalState { serves: ports.iter().copied().collect(), ..ExternalState::default() })
    }

    #[test]
    fn ports_use_tc_until_the_engine_serves_them_and_when_it_has_ended() {
        let mut core = Core::new(choice(), [77]);
        let (_, now) = started(choice(), router());
        let actions = core.handle(now, Event::Dump(router()));
        assert!(actions.contains(&serve([1, 2], [1, 2])), "{actions:?}");
        let starting = (Engine::Tc, "the external engine is starting".to_owned(), false);
        assert_eq!(ports(&core), [starting.clone(), starting]);

        let actions = core.handle(now, serving(&[1, 2]));
        assert!(actions.contains(&Action::MoveEpoch(Cause::Engine)), "{actions:?}");
        let served = (Engine::External, "chosen by configuration".to_owned(), true);
        assert_eq!(ports(&core), [served.clone(), served]);

        let down = Some("the external engine has ended".to_owned());
        core.handle(now, Event::External(ExternalState { down: down.clone(), ..ExternalState::default() }));
        // The program stays, so that no NIC resets its link.
        assert!(ports(&core).iter().all(|port| *port == (Engine::Tc, down.clone().unwrap(), true)));
    }

    #[test]
    fn a_port_that_the_engine_cannot_serve_says_why() {
        let (mut core, now) = started(choice(), router());
        let fails = BTreeMap::from([(2, "queue 0: Operation not supported".to_owned())]);
        let state = ExternalState { serves: BTreeSet::from([1]), fails, down: None };
        core.handle(now, Event::External(state));
        let (engine, reason, _) = &ports(&core)[1];
        assert!(*engine == Engine::Tc && reason.ends_with("queue 0: Operation not supported"), "{reason}");

        for (change, why) in [
            (Event::Link(Link { mtu: 9000, ..link(1, "r0") }), "its MTU of 9000 is larger"),
            (Event::Link(Link { up: false, ..link(1, "r0") }), "it is down"),
            (Event::Link(Link { xdp_prog: Some(5), ..link(1, "r0") }), "another XDP program"),
            (
                Event::XdpFeatures {
                    ifindex: 1,
                    native: false,
                    target: false,
                    target_frags: false,
                    vlan_tags: false,
                    zero_copy: false,
                },
                "its driver has no native XDP",
            ),
        ] {
            let actions = core.handle(now, change);
            let (engine, reason, _) = &ports(&core)[0];
            assert!(*engine == Engine::Tc && reason.contains(why), "{reason}");
            assert!(why.starts_with("another") || !actions.is_empty());
        }
    }

    #[test]
    fn a_lost_carrier_changes_neither_the_engine_nor_the_program() {
        let (mut core, now) = started(choice(), router());
        core.handle(now, serving(&[1, 2]));
        for carrier in [false, true] {
            let actions = core.handle(now, Event::Link(Link { carrier, ..link(1, "r0") }));
            assert!(!actions.iter().any(|action| matches!(action, Action::Serve(_))), "{actions:?}");
            assert!(ports(&core).iter().all(|(engine, _, xdp_in)| *engine == Engine::External && *xdp_in));
        }
    }

    #[test]
    fn all_ports_copy_packets_unless_each_has_zero_copy() {
        let features = |ifindex, zero_copy| Event::XdpFeatures {
            ifindex,
            native: true,
            target: true,
            target_frags: true,
            vlan_tags: false,
            zero_copy,
        };
        let (mut core, now) = started(choice(), router());
        assert_eq!(core.handle(now, features(1, true)), [serve([1, 2], [2])]);
        assert_eq!(core.handle(now, features(2, true)), [serve([1, 2], [])]);
        // A port that the engine cannot serve does not count.
        core.handle(now, features(1, false));
        let actions = core.handle(now, Event::Link(Link { up: false, ..link(1, "r0") }));
        assert!(actions.contains(&serve([2], [])), "{actions:?}");
    }

    #[test]
    fn other_ports_keep_their_engine_beside_those_that_are_named() {
        let choice = Choice { external_ports: vec!["r0".to_owned()], ..Choice::default() };
        let third = [Event::Link(link(3, "r2")), address(3, "198.18.1.1"), native(3)];
        let (mut core, now) = started(choice, router().into_iter().chain(third).collect());
        core.handle(now, serving(&[1]));
        let engines: Vec<Engine> = ports(&core).into_iter().map(|(engine, ..)| engine).collect();
        assert_eq!(engines, [Engine::External, Engine::Xdp, Engine::Xdp]);
        assert!(core.ports().all(|(_, view)| view.setting.xdp_in));
    }
}
