use super::{super::arguments::parse_args, *};
use clap::error::ErrorKind;
use shunt_api::FailureCode;
use std::io::Write;
use tempfile::NamedTempFile;

const ROUTES: &str = "[[route]]\nname = \"wan\"\nout_port = \"eth1\"\ndmac = \"02:00:00:00:00:01\"\n";
const KEY: &str =
    "--in-port eth0 --in-vlan 100 --in-vlan 5 --proto udp --src 192.0.2.1:1000 --dst [2001:db8::1]:2";

fn add(words: &str) -> Result<AddArgs, ErrorKind> {
    parse_args(words).map_err(|error| error.kind())
}

fn del(words: &str) -> Result<DelArgs, ErrorKind> {
    parse_args(words).map_err(|error| error.kind())
}

fn load(path: &Path) -> Result<Change, Failure> {
    Change::resolve(&FlowCommand::Load { file: path.to_owned() })
}

fn file_with(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn a_flow_is_sent_by_a_named_route_or_by_a_port_and_next_hop() {
    let flow = |options: &str| add(&format!("{KEY} {options}")).unwrap().flow();
    let by_route = flow("--route wan --snat 203.0.113.1:9 --mark 0x10 --priority 1:10 --mtu 1400");
    assert_eq!(by_route.key().to_string(), "udp eth0.100.5 192.0.2.1:1000 > [2001:db8::1]:2");
    assert_eq!(by_route.route, RouteChoice::Named("wan".to_owned()));
    assert_eq!(by_route.snat, Some("203.0.113.1:9".parse().unwrap()));
    assert_eq!((by_route.mark, by_route.priority, by_route.mtu), (16, 0x1_0010, Some(1400)));
    let by_port = flow("--out-port eth1 --next-hop 02:00:00:00:00:01 --vlan 7 --dmac 02:00:00:00:00:02");
    let hop = Hop { out_port: "eth1".to_owned(), dmac: Mac([2, 0, 0, 0, 0, 1]), smac: None, vlans: vec![7] };
    assert_eq!(by_port.route, RouteChoice::Inline(hop));
    assert_eq!(by_port.dmac, Some(Mac([2, 0, 0, 0, 0, 2])));
    let refusal = |options: &str| add(&format!("{KEY} {options}")).unwrap_err();
    assert_eq!(refusal(""), ErrorKind::MissingRequiredArgument);
    assert_eq!(refusal("--out-port eth1"), ErrorKind::MissingRequiredArgument);
    assert_eq!(
        refusal("--route wan --out-port eth1 --next-hop 02:00:00:00:00:01"),
        ErrorKind::ArgumentConflict
    );
    assert_eq!(refusal("--route wan --mark 0x100000000"), ErrorKind::ValueValidation);
}

#[test]
fn del_takes_exactly_one_of_a_flow_a_route_a_file_and_all() {
    assert_eq!(del(KEY).unwrap().key().unwrap().in_vlans, [100, 5]);
    let all = del("--all").unwrap();
    assert!(all.all && all.key().is_none());
    assert_eq!(del("--route wan").unwrap().route.unwrap(), "wan");
    assert_eq!(del("--file f").unwrap().file.unwrap(), PathBuf::from("f"));
    assert_eq!(del("").unwrap_err(), ErrorKind::MissingRequiredArgument);
    assert_eq!(del("--in-port eth0").unwrap_err(), ErrorKind::MissingRequiredArgument);
    assert_eq!(del(&format!("--all {KEY}")).unwrap_err(), ErrorKind::ArgumentConflict);
    assert_eq!(del("--all --route wan").unwrap_err(), ErrorKind::ArgumentConflict);
}

#[test]
fn load_adds_and_del_removes_the_routes_of_a_file() {
    let file = file_with(ROUTES);
    let Change::Add { table, .. } = load(file.path()).unwrap() else { panic!("expected an addition") };
    assert_eq!(table.route[0].name, "wan");
    let typed = del(&format!("--file {}", file.path().display())).unwrap();
    let wan = StaticRemoval { route: vec!["wan".to_owned()], ..StaticRemoval::default() };
    assert_eq!(typed.removal().unwrap(), wan);
}

#[test]
fn a_message_about_a_wrong_file_begins_with_its_path_and_line() {
    let file = file_with(&ROUTES.replace("name", "nom"));
    let failure = load(file.path()).unwrap_err();
    assert_eq!(failure.code, FailureCode::BadConfig);
    let start = format!("{}: line 2: unknown key `nom`", file.path().display());
    assert!(failure.message.starts_with(&start), "{failure}");
    let failure = load(Path::new("/nonexistent.toml")).unwrap_err();
    assert_eq!(failure.code, FailureCode::BadConfig);
    assert!(failure.message.starts_with("/nonexistent.toml: there is no such file"), "{failure}");
}

#[test]
fn a_flow_from_ipv4_to_ipv6_is_a_usage_error() {
    let typed = add("--in-port e --proto udp --src 192.0.2.1:1 --dst [2001:db8::1]:2 --route wan").unwrap();
    let failure = Change::resolve(&FlowCommand::Add(Box::new(typed))).unwrap_err();
    assert_eq!(failure.code, FailureCode::Usage);
    assert!(failure.message.ends_with("src and dst are of different address families"), "{failure}");
}
