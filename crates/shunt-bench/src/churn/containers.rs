//! A host of containers, as kube-proxy and a container runtime make it.

use anyhow::Context;
use shunt_testkit::{NetNs, Shuntd, ip_batch, wait_for};
use std::{fmt::Write, fs, net::Ipv4Addr, time::Duration};

/// Containers that run all the time. One more comes and goes.
const COUNT: u32 = 200;
/// Services. Each has a chain with two rules.
const SERVICES: u32 = 5_000;
/// More than the daemon takes to attach to each container's device.
const ATTACH_LIMIT: Duration = Duration::from_secs(60);

/// The containers of a host, which share a network namespace.
pub(super) struct Containers(NetNs);

impl Containers {
    /// Makes the containers' devices and the rules for services.
    pub(super) fn on(router: &NetNs) -> anyhow::Result<Self> {
        // Its MAC is fixed, as that of docker0.
        router.run("ip link add containers address 02:42:00:00:00:01 type bridge; ip link set containers up");
        router.run("ip address add 10.1.0.1/16 dev containers");
        let containers = Self(NetNs::new("containers"));
        let peers = containers.0.name();
        ip_batch(router, COUNT, |n| format!("link add c{n} type veth peer name eth{n} netns {peers}"));
        ip_batch(router, COUNT, |n| format!("link set c{n} master containers up"));
        ip_batch(&containers.0, COUNT, |n| format!("link set eth{n} up"));
        let file = std::env::temp_dir().join(format!("{}.nft", router.name()));
        fs::write(&file, rules()?)?;
        router.run(&format!("nft -f {0}; rm {0}", file.display()));
        Ok(containers)
    }

    /// The command that starts one more container, or ends it.
    pub(super) fn change_container(&self, start: bool) -> String {
        let peers = self.0.name();
        if start {
            format!(
                "ip link add c{COUNT} type veth peer name eth{COUNT} netns {peers}; \
                 ip -n {peers} link set eth{COUNT} up; ip link set c{COUNT} master containers up"
            )
        } else {
            format!("ip link delete c{COUNT}")
        }
    }
}

/// Waits until all devices of containers are ports.
pub(super) fn await_ports(shuntd: &Shuntd) -> anyhow::Result<()> {
    let is_port = |name: &str| name.strip_prefix('c').is_some_and(|n| n.parse::<u32>().is_ok());
    let ports = || Ok(shuntd.try_status()?.ports.iter().filter(|port| is_port(&port.name)).count());
    let attached = wait_for(ATTACH_LIMIT, || match ports() {
        Ok(count) => (count == COUNT as usize).then_some(Ok(())),
        Err(error) => Some(Err(error)),
    });
    attached.with_context(|| format!("not all of {COUNT} devices are ports: {}", shuntd.log()))?
}

fn rules() -> anyhow::Result<String> {
    let mut text = String::from("table ip services {\n");
    let mut elements = Vec::new();
    for n in 0..SERVICES {
        let endpoint = address([10, 1, 0, 0], n + 2);
        let service = address([10, 96, 0, 0], n + 1);
        writeln!(
            text,
            "chain endpoint-{n} {{ ip saddr {endpoint} meta mark set 0x4000; meta l4proto tcp dnat to {endpoint}:8080; }}"
        )?;
        elements.push(format!("{service} . tcp . 80 : goto endpoint-{n}"));
    }
    writeln!(
        text,
        "map services {{ type ipv4_addr . inet_proto . inet_service : verdict; elements = {{ {} }} }}
        chain services {{ ip daddr . meta l4proto . th dport vmap @services; }}
        chain prerouting {{ type nat hook prerouting priority -100; jump services; }}
        chain output {{ type nat hook output priority -100; jump services; }}
        }}",
        elements.join(", ")
    )?;
    Ok(text)
}

fn address(network: [u8; 4], host: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::from(network).to_bits() + host)
}

/// The command that adds a service, or removes it again, in one transaction.
pub(super) fn change_service(add: bool) -> String {
    let element = "element ip services services { 10.97.0.1 . tcp . 80 : goto endpoint-new }";
    let lines = if add {
        format!(
            "add chain ip services endpoint-new; add rule ip services endpoint-new meta l4proto tcp dnat to \
             10.1.200.1:8080; add {element}"
        )
    } else {
        format!(
            "delete {element}; flush chain ip services endpoint-new; delete chain ip services endpoint-new"
        )
    };
    format!("nft '{lines}'")
}
