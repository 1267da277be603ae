use super::*;

const FILE: &str = r#"
[[route]]
name = "wan"
out_port = "eth1"
dmac = "02:00:00:00:00:01"
vlans = [100, 200]

[[flow]]
in_port = "eth0"
proto = "udp"
src = "192.0.2.1"
sport = 5000
dst = "198.51.100.1"
dport = 53
snat = "203.0.113.1:6000"
route = "wan"

[[flow]]
in_port = "eth1"
in_vlans = [100, 200]
proto = "tcp"
src = "2001:db8::1"
sport = 80
dst = "2001:db8::2"
dport = 40000
dmac = "02:00:00:00:00:02"
dnat = "[2001:db8:1::2]:40001"
route = { out_port = "eth0", dmac = "02:00:00:00:00:03", smac = "02:00:00:00:00:04" }
mark = 7
priority = 0x10001
mtu = 1400
"#;

fn refusal(from: &str, to: &str) -> String {
    assert!(FILE.contains(from), "{from}");
    StaticTable::parse(&FILE.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn routes_and_flows_of_a_file_are_read() {
    let table = StaticTable::parse(FILE).unwrap();
    assert_eq!(table.route[0].vlans, [100, 200]);
    let [udp, tcp] = &table.flow[..] else { panic!("expected two flows") };
    assert_eq!(udp.route, RouteChoice::Named("wan".to_owned()));
    assert_eq!(udp.new_tuple().source(), "203.0.113.1:6000".parse().unwrap());
    assert_eq!(udp.new_tuple().destination(), "198.51.100.1:53".parse().unwrap());
    assert_eq!((udp.dmac, udp.mark, udp.mtu), (None, 0, None));
    let RouteChoice::Inline(hop) = &tcp.route else { panic!("expected a route in place") };
    assert_eq!((hop.out_port.as_str(), hop.smac), ("eth0", Some(Mac([2, 0, 0, 0, 0, 4]))));
    assert_eq!((tcp.mark, tcp.priority, tcp.mtu), (7, 0x10001, Some(1400)));
    assert_eq!(tcp.key().to_string(), "tcp eth1.100.200 [2001:db8::1]:80 > [2001:db8::2]:40000");
}

#[test]
fn the_guide_has_a_file_that_is_read_and_names_every_key() {
    let guide = include_str!("../../../../docs/guide/static-flows.md");
    let example = guide.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let table = StaticTable::parse(example).unwrap();
    assert_eq!((table.route.len(), table.flow.len()), (1, 2));
    let whole = StaticTable::parse(FILE).unwrap();
    let keys = |value: serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let flows = whole.flow.iter().flat_map(|flow| keys(serde_json::to_value(flow).unwrap()));
    let routes = whole.route.iter().flat_map(|route| keys(serde_json::to_value(route).unwrap()));
    for key in flows.chain(routes).chain(["smac".to_owned()]) {
        assert!(guide.contains(&format!("`{key}`")), "the guide does not name `{key}`");
    }
}

#[test]
fn a_table_survives_a_round_trip_through_json_and_toml() {
    let table = StaticTable::parse(FILE).unwrap();
    let json = serde_json::to_string(&table).unwrap();
    assert_eq!(serde_json::from_str::<StaticTable>(&json).unwrap(), table);
    let text = toml::to_string(&table).unwrap();
    assert_eq!(StaticTable::parse(&text).unwrap(), table);
}

#[test]
fn an_error_names_the_wrong_key() {
    let unknown = refusal("mtu = 1400", "mut = 1400");
    assert!(unknown.contains("unknown key `mut`; did you mean `mtu`?"), "{unknown}");
    let nested = refusal("smac =", "mac =");
    assert!(nested.contains("unknown key `mac`"), "{nested}");
    let missing = refusal("sport = 5000\n", "");
    assert!(missing.contains("the key `sport` is missing"), "{missing}");
    let mac = refusal("dmac = \"02:00:00:00:00:01\"", "dmac = \"02:00\"");
    assert!(mac.starts_with("line 5: dmac: `02:00` is not a MAC address"), "{mac}");
    let route = refusal("route = \"wan\"", "route = 3");
    assert!(route.contains("route") && route.contains("the name of a route"), "{route}");
}

#[test]
fn impossible_flows_and_routes_are_refused() {
    let at = "flow udp eth0 192.0.2.1:5000 > 198.51.100.1:53: ";
    assert_eq!(
        refusal("203.0.113.1:6000", "[2001:db8::9]:1"),
        format!("{at}snat: another address family than src")
    );
    assert_eq!(refusal("[100, 200]", "[100, 4095]"), "route `wan`: vlans: expected 1 to 4094, got 4095");
    assert_eq!(refusal("[100, 200]", "[1, 2, 3]"), "route `wan`: vlans: 3 tags given; the most is 2");
    assert_eq!(refusal("\"wan\"", "\"\""), "a route has no name; add `name = ...`");
    assert_eq!(
        refusal("smac = \"02:", "smac = \"03:"),
        "flow tcp eth1.100.200 [2001:db8::1]:80 > [2001:db8::2]:40000: route: smac: a source MAC cannot be a multicast address"
    );
}
