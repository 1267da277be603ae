//! VLAN tags and TCP in `shunt bench size`, `ndr` and `sweep`.

use super::gen_command::{Bench, NICS, bench, json};
use serde_json::Value;
use shunt_testkit::{NetNs, Shunt, Tap, require_root};
use shunt_traffic::Tagger;
use std::time::Duration;

/// Puts a VLAN device with the port's address on a port of the router, or a macvlan device with programs that tag, on
/// kernels without VLAN devices.
fn tag(router: &NetNs, port: &str, net: &str, vid: u16) -> Option<Tagger> {
    let device = format!("{port}.{vid}");
    let is_vlan =
        router.try_run(&format!("ip link add link {port} name {device} type vlan id {vid}")).is_ok();
    if !is_vlan {
        router.run(&format!("ip link add link {port} name {device} type macvlan mode passthru"));
    }
    router.run(&format!("ip address del {net}.1/24 dev {port}"));
    router.run(&format!("ip link set {device} up && ip address add {net}.1/24 dev {device}"));
    (!is_vlan).then(|| router.within(|| Tagger::attach(router.ifindex(&device), vid).unwrap()))
}

/// The first frame of the generator that the tap sees, up to the end of the IP header.
fn head(tap: &Tap) -> Vec<u8> {
    let is_udp = |bytes: &[u8]| bytes.windows(2).any(|two| two == 5001_u16.to_be_bytes());
    let frame = tap.capture(Duration::from_secs(5), |frame| is_udp(&frame.bytes));
    frame.expect("a frame of the generator").bytes
}

#[test]
fn frames_have_the_tags_of_their_link_on_the_wire() {
    if !require_root() {
        return;
    }
    const IPV4: &[u8] = &[0x08, 0x00, 0x45];
    const TEN: &[u8] = &[0x81, 0x00, 0x00, 10, 0x08, 0x00, 0x45];
    const TWENTY: &[u8] = &[0x81, 0x00, 0x00, 20, 0x08, 0x00, 0x45];
    for (vlan, ids, types) in
        [("10", [Some(10), None], [TEN, IPV4]), (":20", [None, Some(20)], [IPV4, TWENTY])]
    {
        let Bench { host, router, shunt } = bench();
        let ports = [("p0", "192.0.2"), ("p1", "198.51.100")];
        let _tags: Vec<Option<Tagger>> = ports
            .iter()
            .zip(ids)
            .map(|((port, net), vid)| vid.and_then(|vid| tag(&router, port, net, vid)))
            .collect();
        let taps = ports.map(|(port, _)| Tap::open(&router, port));
        let nics = NICS.replace(" --no-floor", "");
        let report = json(
            &shunt.run(&format!("bench sweep {nics} --vlan {vlan} --from 1M --to 1M --size 128 --time 2s")),
        );
        assert_eq!(report["variant"], format!("VLAN {vlan}"));
        for one in report["steps"][0]["directions"].as_array().unwrap() {
            // Frames without the tag of their link would not arrive.
            assert_eq!(one["lost"], 0, "{vlan}: {one:#}");
        }
        for ((tap, expected), nic) in taps.iter().zip(types).zip(["t0", "t1"]) {
            let bytes = head(tap);
            assert_eq!(bytes[12..12 + expected.len()], *expected, "{vlan}: {bytes:02x?}");
            let own = host.run(&format!("cat /sys/class/net/{nic}/address"));
            let source: Vec<String> = bytes[6..12].iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(source.join(":"), own.trim());
        }
    }
}

#[test]
fn a_router_in_a_namespace_tags_with_the_devices_that_the_kernel_has() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let has_vlans =
        place.try_run("ip link add a type veth peer name b && ip link add link a name a.5 type vlan id 5");
    let output = Shunt::on(&place).run(
        "bench sweep --json --vlan 10:20 --from 1M --to 1M --size 128 --time 300ms --ip 6 --engine slow",
    );
    match has_vlans {
        Ok(_) => {
            let report = json(&output);
            let lost = |one: &Value| one["lost"].as_u64();
            let all = report["steps"][0]["directions"].as_array().unwrap();
            assert!(all.iter().all(|one| lost(one) == Some(0)), "{report:#}");
        }
        Err(_) => {
            assert_eq!(output.code, Some(2), "{}", output.err);
            let why = "this kernel has no VLAN devices";
            assert!(output.err.contains(why) && output.err.contains("--tx and --rx"), "{}", output.err);
            assert_eq!(output.err.lines().count(), 1, "{}", output.err);
        }
    }
}

#[test]
fn segments_of_established_connections_take_the_fast_path() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let size = |options: &str| {
        let size = "bench size --json --tcp --flows 3 --size 128 --runs 1 --time 300ms --engine tc";
        json(&Shunt::on(&place).run(&format!("{size} {options}")))
    };
    let [report, one_way] = ["--engine slow --both", ""].map(size);
    assert_eq!(report["variant"], "TCP, 3 flows, both directions");
    for point in [&report, &one_way].into_iter().flat_map(|of| of["points"].as_array().unwrap()) {
        let doubts = point["forwarded_pps"]["doubts"].as_array().unwrap();
        let kinds: Vec<&str> = doubts.iter().map(|doubt| doubt["kind"].as_str().unwrap()).collect();
        assert!(!kinds.contains(&"slow-path") && !kinds.contains(&"nothing-arrived"), "{point:#}");
        assert!(point["forwarded_pps"]["value"].as_f64() > Some(0.0), "{point:#}");
    }
    let reading = &report["readings"]["tc 128, TCP, 3 flows, both directions"];
    assert_eq!((&reading["labels"]["protocol"], &reading["labels"]["tags"]), (&"tcp".into(), &0.into()));
}

#[test]
fn the_load_of_the_router_is_that_of_its_threads() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let report = json(&Shunt::on(&place).run(
        "bench sweep --json --cpu --one-way --from 1M --to 61M --step 60M --size 128 --time 500ms --engine tc",
    ));
    let loads: Vec<[f64; 2]> = report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| ["load_percent", "core_percent"].map(|name| step["dut_load"][name].as_f64().unwrap()))
        .collect();
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    for [all, one] in &loads {
        assert!((all * cpus / one - 1.0).abs() < 1e-9 && *one > 0.0 && *one <= 100.0 * cpus, "{loads:?}");
    }
    // Sixty times as many packets, unless the machine let the sender send fewer.
    let received = [0, 1].map(|step| report["steps"][step]["directions"][0]["received"].as_u64().unwrap());
    assert!(received[1] < 20 * received[0] || loads[1][1] > loads[0][1], "{received:?}: {loads:?}");
    let reading = &report["readings"]["load of the router tc at 61Mbit"];
    assert_eq!(reading["labels"]["engine"], "tc", "{:#}", report["readings"]);
    assert_eq!((&reading["position"]["of"], &reading["position"]["line"]), (&"load".into(), &"tc".into()));
}
