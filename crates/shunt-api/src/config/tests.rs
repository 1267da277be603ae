use super::*;
use crate::qos::{BitRate, PortQos};

const EXAMPLE: &str = include_str!("../../../../packaging/shunt.toml");

fn refusal(text: &str) -> String {
    Config::parse(text).unwrap_err()
}

#[test]
fn the_packaged_file_has_every_key_with_its_default() {
    assert_eq!(Config::parse(EXAMPLE).unwrap(), Config::default());
    let written: toml::Table = toml::from_str(EXAMPLE).unwrap();
    for key in toml::Table::try_from(Config::default()).unwrap().keys() {
        assert!(written.contains_key(key), "packaging/shunt.toml lacks `{key}`");
    }
}

#[test]
fn an_empty_file_gives_the_defaults() {
    assert_eq!(Config::parse("").unwrap(), Config::default());
}

#[test]
fn every_key_is_read() {
    let config = Config::parse(
        r#"
        engine = "xdp"
        external_ports = ["eth2"]
        external_core = 3
        external_wait = "poll"
        external_copy_vlan = 255
        ports = ["eth0", "lan1.5"]
        learn = false
        btf = "/etc/shunt/own.btf"
        max_flows = 1000
        reprove = "1s 500ms"
        idle = "2m"
        udp_packets = 5
        tcp_packets = 7
        udp_unreplied = false
        exclude_mark = "0x10/0xf0"
        exclude_ct_mark = "7"
        captures = "ignore"
        limits = "ignore"
        verify_checksums = "always"
        look_ahead_flows = 5000
        rest_after = "3m"
        netlink_buffer = 65536
        read_group = "wheel"
        metrics = "[::1]:9000"
        page = "192.0.2.1:80"
        page_token_file = "/etc/shunt/token"
        page_reports = "/srv/reports"
        hosts = ["router.lan"]
        usage = false
        savings = true
        log = "debug"

        [qos.wan0]
        rate = "100M"
        "#,
    );
    let want = Config {
        engine: EngineChoice::Xdp,
        external_ports: vec!["eth2".to_owned()],
        external_core: Some(3),
        external_wait: WaitChoice::Poll,
        external_copy_vlan: 255,
        ports: vec!["eth0".to_owned(), "lan1.5".to_owned()],
        learn: false,
        btf: "/etc/shunt/own.btf".to_owned(),
        max_flows: 1000,
        reprove: Duration::from_millis(1500),
        idle: Duration::from_secs(120),
        udp_packets: 5,
        tcp_packets: 7,
        udp_unreplied: false,
        exclude_mark: Some(MarkMatch { value: 0x10, mask: 0xf0 }),
        exclude_ct_mark: Some(MarkMatch { value: 7, mask: u32::MAX }),
        captures: CaptureChoice::Ignore,
        limits: LimitChoice::Ignore,
        verify_checksums: ChecksumChoice::Always,
        look_ahead_flows: 5000,
        rest_after: Duration::from_secs(180),
        netlink_buffer: 65536,
        read_group: "wheel".to_owned(),
        metrics: Some(([0, 0, 0, 0, 0, 0, 0, 1], 9000).into()),
        page: Some(([192, 0, 2, 1], 80).into()),
        page_token_file: "/etc/shunt/token".to_owned(),
        page_reports: "/srv/reports".to_owned(),
        hosts: vec!["router.lan".to_owned()],
        usage: false,
        savings: true,
        log: LogLevel::Debug,
        qos: [("wan0".to_owned(), PortQos { rate: BitRate(100_000_000), ..PortQos::default() })].into(),
    };
    assert_eq!(config.unwrap(), want);
}

#[test]
fn a_configuration_survives_a_round_trip_through_toml() {
    let config = Config {
        reprove: Duration::from_millis(250),
        exclude_mark: Some(MarkMatch { value: 1, mask: 1 }),
        ..Config::default()
    };
    let text = toml::to_string(&config).unwrap();
    assert!(text.contains("reprove = \"250ms\""), "{text}");
    assert_eq!(Config::parse(&text).unwrap(), config);
}

#[test]
fn an_unknown_key_is_refused_by_name() {
    let why = refusal("idle = \"30s\"\nmax_flow = 3\n");
    assert_eq!(why, "line 2: unknown key `max_flow`; did you mean `max_flows`?");
    let why = refusal("colour = 3\n");
    assert!(why.starts_with("line 1: unknown key `colour`; known are engine, "), "{why}");
}

#[test]
fn a_value_of_the_wrong_kind_names_its_key_and_line() {
    assert_eq!(
        refusal("\nmax_flows = \"many\""),
        "line 2: max_flows: expected a number, got \"many\"; the default is max_flows = 0"
    );
    assert_eq!(
        refusal("engine = \"fast\""),
        "line 1: engine: unknown value `fast`; known are auto, tc, xdp, external"
    );
    assert_eq!(
        refusal("ports = [\n  \"eth0\",\n  7\n]"),
        "line 3: ports: expected a string in quotes, got 7; the default is ports = []"
    );
    assert_eq!(
        refusal("reprove = \"soon\""),
        "line 1: reprove: `soon` is not a duration; expected a form such as 500ms, 2s or 1m"
    );
    assert_eq!(
        refusal("reprove = 2"),
        "line 1: reprove: expected a string in quotes, got 2; the default is reprove = \"2s\""
    );
    assert_eq!(
        refusal("[learn]\non = true"),
        "line 1: learn: expected true or false, got a table; the default is learn = true"
    );
    assert_eq!(
        refusal("ports = \"eth0\""),
        "line 1: ports: expected a list in [ ], such as [\"eth0\"], got \"eth0\""
    );
}

#[test]
fn a_value_out_of_range_names_its_key_and_the_range() {
    assert_eq!(refusal("reprove = \"100ms\""), "line 1: reprove: expected 200ms to 30s, got 100ms");
    assert_eq!(refusal("reprove = \"31s\""), "line 1: reprove: expected 200ms to 30s, got 31s");
    assert_eq!(refusal("idle = \"0s\""), "line 1: idle: expected 1s to 1day, got 0s");
    assert_eq!(refusal("max_flows = 63"), "line 1: max_flows: expected 64 to 4194304, got 63");
    assert_eq!(refusal("udp_packets = 0"), "line 1: udp_packets: expected 1 to 1000000, got 0");
    assert_eq!(refusal("tcp_packets = 1000001"), "line 1: tcp_packets: expected 1 to 1000000, got 1000001");
}

#[test]
fn an_error_in_a_mark_names_its_key_and_the_reason() {
    assert_eq!(
        refusal("exclude_mark = \"ten\""),
        "line 1: exclude_mark: `ten` is not a mark; expected a form such as 0x10, 16 or 0x10/0xf0"
    );
    assert!(
        refusal("exclude_ct_mark = \"1/0\"").starts_with("line 1: exclude_ct_mark: `1/0`: the mask is 0")
    );
    assert!(refusal("exclude_mark = 16").starts_with("line 1: exclude_mark: "));
    assert!(refusal("exclude_marks = \"1\"").contains("exclude_marks"));
}

#[test]
fn port_names_follow_the_rules_of_the_kernel() {
    assert_eq!(refusal("ports = [\"\"]"), "line 1: ports: `` is not a valid name of a network device");
    assert!(refusal("ports = [\"sixteen-letters!\"]").starts_with("line 1: ports: `sixteen-letters!`"));
    assert!(refusal("ports = [\"a/b\"]").starts_with("line 1: ports: `a/b`"));
    assert_eq!(refusal("ports = [\"eth0\", \"eth0\"]"), "line 1: ports: `eth0` is named twice");
}

#[test]
fn the_message_about_broken_toml_is_one_line() {
    for text in ["engine = ", "= 3", "[[[", "engine \"auto\"", "\u{0}"] {
        let why = refusal(text);
        assert!(why.starts_with("line 1: ") && !why.contains('\n'), "{why}");
    }
}

#[test]
fn a_port_alone_means_that_port_of_loopback() {
    for port in ["9469", "\"9469\"", "\"127.0.0.1:9469\""] {
        let config = Config::parse(&format!("metrics = {port}")).unwrap();
        assert_eq!(config.metrics, Some(([127, 0, 0, 1], 9469).into()), "{port}");
    }
    assert_eq!(Config::parse("metrics = \"\"").unwrap().metrics, None);
    for bad in ["0", "65536", "-1", "true", "\"localhost:9469\"", "\"127.0.0.1\"", "\"127.0.0.1:0\""] {
        assert!(refusal(&format!("metrics = {bad}")).contains("metrics"), "{bad}");
    }
}

#[test]
fn a_page_that_others_can_reach_needs_a_token() {
    let page = |text: &str| Config::parse(text);
    assert_eq!(page("page = 9470").unwrap().page, Some(([127, 0, 0, 1], 9470).into()));
    assert!(page("page = \"[::1]:9470\"").is_ok());
    assert!(page("page = \"0.0.0.0:9470\"\npage_token_file = \"/etc/shunt/token\"").is_ok());
    for address in ["0.0.0.0:9470", "192.0.2.1:9470", "[::]:9470"] {
        let why = refusal(&format!("page = \"{address}\""));
        assert!(why.contains("page_token_file") && why.contains("127.0.0.1:9470"), "{why}");
    }
}
