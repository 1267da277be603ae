use super::*;
use clap::{CommandFactory, error::ErrorKind};

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(format!("shunt {line}").split_whitespace())
}

fn refusal(line: &str) -> ErrorKind {
    parse(line).map(|typed| format!("{typed:?}")).unwrap_err().kind()
}

fn typed_flows(line: &str) -> FlowsArgs {
    match parse(line).unwrap().command {
        Command::Flows(flows) => flows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definitions_are_sound() {
    Cli::command().debug_assert();
}

#[test]
fn what_is_global_may_stand_anywhere() {
    for line in ["--instance lab --json -v status", "status --json -v --instance lab"] {
        let typed = parse(line).unwrap();
        assert_eq!((typed.instance.as_str(), typed.json, typed.verbose), ("lab", true, true));
    }
    assert_eq!(parse("status").unwrap().instance, Instance::default());
    assert_eq!(refusal("--instance A/B status"), ErrorKind::ValueValidation);
}

#[test]
fn up_takes_ports_an_engine_and_a_file() {
    let Command::Up(up) = parse("up --port eth0 --port eth1 --engine xdp --config a.toml").unwrap().command
    else {
        panic!("up")
    };
    assert_eq!(up.ports, ["eth0", "eth1"]);
    assert_eq!((up.engine, up.config), (Some(EngineChoice::Xdp), Some(PathBuf::from("a.toml"))));
    assert!(!up.foreground);
    assert_eq!(refusal("up --engine fast"), ErrorKind::InvalidValue);
}

#[test]
fn load_is_of_intervals_or_a_test_of_itself() {
    let load = |line: &str| match parse(line).unwrap().command {
        Command::Load(load) => load,
        other => panic!("{other:?}"),
    };
    let typed = load("load --interval 2s --count 3 --cpu 0 --cpu 2");
    assert_eq!((typed.interval, typed.count, typed.cpus), (Duration::from_secs(2), Some(3), vec![0, 2]));
    assert!(load("load --self-test --cpu 1").self_test);
    assert_eq!(refusal("load --interval 99ms"), ErrorKind::ValueValidation);
    assert_eq!(refusal("load --count 0"), ErrorKind::ValueValidation);
    assert_eq!(refusal("load --self-test --count 1"), ErrorKind::ArgumentConflict);
}

#[test]
fn flows_are_filtered_and_sorted() {
    let typed =
        typed_flows("flows --dst 198.18.0.0/15 --dport 53 --proto udp --state stale --engine tc --port eth0");
    let filter = Filter {
        ends: Selection {
            dst: Some("198.18.0.0/15".parse().unwrap()),
            dport: Some(53),
            proto: Some(Proto::Udp),
            ..Selection::default()
        },
        state: Some(FlowState::Stale),
        engine: Some(Engine::Tc),
        port: Some("eth0".to_owned()),
    };
    assert_eq!(typed.filter(), filter);
    assert_eq!(typed.order(), Order { key: SortKey::Rate, reverse: false, limit: None });
    let typed = typed_flows("flows --sort idle --reverse --limit 5 --over 2s");
    assert_eq!(typed.order(), Order { key: SortKey::Idle, reverse: true, limit: Some(5) });
    assert_eq!(typed.over, Duration::from_secs(2));
    for line in
        ["flows --src 300.1.1.1", "flows --dst 10.0.0.0/33", "flows --over 11s", "flows --sport 65536"]
    {
        assert_eq!(refusal(line), ErrorKind::ValueValidation, "{line}");
    }
    assert_eq!(refusal("flows --sort size"), ErrorKind::InvalidValue);
}

const KEY: &str =
    "--in-port eth0 --in-vlan 100 --in-vlan 5 --proto udp --src 192.0.2.1:1000 --dst [2001:db8::1]:2";

#[test]
fn a_flow_is_added_by_a_route_or_a_next_hop() {
    let add = |rest: &str| match parse(&format!("flow add {KEY} {rest}")).unwrap().command {
        Command::Flow(FlowCommand::Add(add)) => add.flow(),
        other => panic!("{other:?}"),
    };
    let flow = add("--route wan --snat 203.0.113.1:9 --mark 0x10 --priority 1:10 --mtu 1400");
    assert_eq!(flow.key().to_string(), "udp eth0.100.5 192.0.2.1:1000 > [2001:db8::1]:2");
    assert_eq!(flow.route, RouteChoice::Named("wan".to_owned()));
    assert_eq!(flow.snat, Some("203.0.113.1:9".parse().unwrap()));
    assert_eq!((flow.mark, flow.priority, flow.mtu), (16, 0x1_0010, Some(1400)));
    let flow = add("--out-port eth1 --next-hop 02:00:00:00:00:01 --vlan 7 --dmac 02:00:00:00:00:02");
    let hop = Hop { out_port: "eth1".to_owned(), dmac: Mac([2, 0, 0, 0, 0, 1]), smac: None, vlans: vec![7] };
    assert_eq!(flow.route, RouteChoice::Inline(hop));
    assert_eq!(flow.dmac, Some(Mac([2, 0, 0, 0, 0, 2])));
    let refused = |rest: &str| refusal(&format!("flow add {KEY} {rest}"));
    assert_eq!(refused(""), ErrorKind::MissingRequiredArgument);
    assert_eq!(refused("--out-port eth1"), ErrorKind::MissingRequiredArgument);
    assert_eq!(
        refused("--route wan --out-port eth1 --next-hop 02:00:00:00:00:01"),
        ErrorKind::ArgumentConflict
    );
    assert_eq!(refused("--route wan --mark 0x100000000"), ErrorKind::ValueValidation);
}

#[test]
fn what_is_taken_out_is_named_in_one_way() {
    let del = |rest: &str| match parse(&format!("flow del {rest}")).unwrap().command {
        Command::Flow(FlowCommand::Del(del)) => del,
        other => panic!("{other:?}"),
    };
    assert_eq!(del(KEY).key().unwrap().in_vlans, [100, 5]);
    assert!(del("--all").all && del("--all").key().is_none());
    assert_eq!(del("--route wan").route.unwrap(), "wan");
    assert_eq!(del("--file f").file.unwrap(), PathBuf::from("f"));
    assert_eq!(refusal("flow del"), ErrorKind::MissingRequiredArgument);
    assert_eq!(refusal("flow del --in-port eth0"), ErrorKind::MissingRequiredArgument);
    assert_eq!(refusal(&format!("flow del --all {KEY}")), ErrorKind::ArgumentConflict);
    assert_eq!(refusal("flow del --all --route wan"), ErrorKind::ArgumentConflict);
}

#[test]
fn a_connection_is_named_by_its_ends_in_order_or_by_filters() {
    let why = |line: &str| match parse(&format!("why {line}")).unwrap().command {
        Command::Why(why) => why.selection(),
        other => panic!("{other:?}"),
    };
    let whole = "src=192.0.2.1&dst=198.51.100.1&sport=1000&dport=53&proto=udp";
    assert_eq!(why("udp 192.0.2.1:1000 198.51.100.1:53").unwrap().query(), whole);
    assert_eq!(why("-p udp -s 192.0.2.1 --sport 1000 -d 198.51.100.1 --dport 53").unwrap().query(), whole);
    assert_eq!(
        why("192.0.2.1 [2001:db8::1]:443").unwrap().query(),
        "src=192.0.2.1&dst=2001:db8::1&dport=443"
    );
    assert_eq!(why("tcp 192.0.2.0/24 --dport 22").unwrap().query(), "src=192.0.2.0/24&dport=22&proto=tcp");
    assert_eq!(why("").unwrap(), Selection::default());
    for wrong in ["eth0", "192.0.2.1 tcp", "192.0.2.1:99999", "192.0.2.1 192.0.2.2 192.0.2.3"] {
        assert!(why(wrong).is_err(), "{wrong}");
    }
    let conntrack = |line: &str| match parse(&format!("conntrack {line}")).unwrap().command {
        Command::Conntrack(conntrack) => conntrack.proto,
        other => panic!("{other:?}"),
    };
    assert_eq!((conntrack("-p icmpv6"), conntrack("-p 47"), conntrack("")), (Some(58), Some(47), None));
    assert_eq!(refusal("conntrack -p ether"), ErrorKind::ValueValidation);
}
