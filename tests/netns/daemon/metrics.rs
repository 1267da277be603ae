//! The metrics agree with the status, are well-formed, and their number is bounded.

use shunt_api::FailureCode;
use shunt_testkit::{
    Shuntd, Stage, Topology, require_root, rulesets, silent_router, skip, tree::root, wait_until,
};
use std::{
    collections::BTreeMap,
    io::Write,
    net::TcpListener,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The values of a metrics page, by name and labels.
fn values(page: &str) -> BTreeMap<&str, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

fn page(shuntd: &Shuntd) -> String {
    let (status, page) = shuntd.request("GET", "/metrics", "").unwrap();
    assert_eq!(status, 200, "{page}");
    page
}

#[test]
fn metrics_agree_with_status() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("tc").start();
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("counted in both");
    stage.teach(&shuntd, &packet);
    let (page, status) = (page(&shuntd), shuntd.status());
    let values = values(&page);
    for port in &status.ports {
        let value = |name: &str, labels: &str| {
            let key = format!("{name}{{{labels}}}");
            *values.get(key.as_str()).unwrap_or_else(|| panic!("{key} is not in\n{page}"))
        };
        let name = &port.name;
        let packets = |path: &str| value("shunt_packets_total", &format!(r#"device="{name}",path="{path}""#));
        assert_eq!(packets("tc"), port.packets.tc as f64);
        assert_eq!(packets("slow"), port.packets.slow as f64);
        let slow = format!(r#"device="{name}",path="slow""#);
        assert_eq!(value("shunt_bytes_total", &slow), port.bytes.slow as f64);
        for (reason, count) in &port.reasons {
            let labels = format!(r#"device="{name}",reason="{reason}""#);
            assert_eq!(value("shunt_punts_total", &labels), *count as f64);
        }
    }
    // A rate needs a first value, and an empty label is none.
    assert_eq!(values[r#"shunt_punts_total{device="r0",reason="ttl"}"#], 0.0);
    assert_eq!(values[r#"shunt_epoch_moves_total{cause="overrun"}"#], 0.0);
    assert!(!page.contains(r#"="""#), "{page}");
    assert!(status.packets.fast > 0 && values[r#"shunt_flows{state="active"}"#] == 1.0, "{page}");
    assert_eq!(values["shunt_flows_max"], status.flows.max as f64);
}

/// Path of promtool; prints SKIP if there is none.
fn promtool() -> Option<PathBuf> {
    let found = Command::new(root().join("packaging/promtool.sh")).output().unwrap();
    if !found.status.success() {
        skip(&format!("there is no promtool: {}", String::from_utf8_lossy(&found.stderr)));
        return None;
    }
    Some(String::from_utf8(found.stdout).unwrap().trim().into())
}

/// The directory of the alert rules and the dashboard.
fn prometheus() -> PathBuf {
    root().join("packaging/prometheus")
}

#[test]
fn the_alert_rules_pass_their_own_tests() {
    let Some(promtool) = promtool() else { return };
    let output =
        Command::new(&promtool).args(["test", "rules", "alerts_test.yml"]).current_dir(prometheus()).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let rules = std::fs::read_to_string(prometheus().join("alerts.yml")).unwrap();
    let tests = std::fs::read_to_string(prometheus().join("alerts_test.yml")).unwrap();
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    assert!(alerts.clone().count() > 5);
    alerts.for_each(|alert| assert!(tests.contains(&format!("alertname: {alert}")), "{alert} has no test"));
}

/// The queries of the dashboard and of the alert rules.
fn queries() -> Vec<String> {
    let dashboard = std::fs::read_to_string(prometheus().join("dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<String> = targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    assert!(queries.len() > 10);
    queries.iter().map(|query| query.replace("$instance", ".+").replace("$__rate_interval", "10s")).collect()
}

#[test]
fn a_real_prometheus_reads_the_metrics_and_answers_the_queries_of_the_dashboard() {
    if !require_root() {
        return;
    }
    let Some(promtool) = promtool() else { return };
    let prometheus = promtool.with_file_name("prometheus");
    let lab = silent_router(rulesets::OPEN);
    lab.router().run("ip link set lo up");
    let shuntd = Shuntd::on(lab.router()).config("metrics = 9469").start();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs: \
         [{{job_name: shunt, static_configs: [{{targets: ['127.0.0.1:9469']}}]}}]\n",
        self::prometheus().join("alerts.yml").display()
    );
    std::fs::write(&config, text).unwrap();
    let (config, data) = (config.display(), directory.path().join("data"));
    let _prometheus = lab.router().spawn(&format!(
        "{} --config.file={config} --storage.tsdb.path={} --web.listen-address=127.0.0.1:9090",
        prometheus.display(),
        data.display()
    ));
    let ask = |query: &str| {
        let curl = format!(
            "curl --silent --get --data-urlencode 'query={query}' http://127.0.0.1:9090/api/v1/query"
        );
        serde_json::from_str::<serde_json::Value>(&lab.router().try_run(&curl).ok()?).ok()
    };
    let has_values = |query: &str| {
        ask(query)
            .is_some_and(|answer| answer["data"]["result"].as_array().is_some_and(|all| !all.is_empty()))
    };
    wait_until("Prometheus has read the metrics twice", || has_values("rate(shunt_packets_total[10s])"));
    for query in queries() {
        let answer = ask(&query).unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        // Those with `> 0` may have nothing to show.
        let is_rare = query.contains("> 0");
        assert!(is_rare || has_values(&query), "{query} has no value: {answer}");
    }
    assert!(has_values(r#"shunt_build_info{name!=""}"#) && !has_values(r#"{exported_instance!=""}"#));
    let curl = "curl --silent http://127.0.0.1:9090/api/v1/rules";
    wait_until("the rules were evaluated", || !lab.router().run(curl).contains(r#""health":"unknown""#));
    assert!(!lab.router().run(curl).contains(r#""health":"err""#));
    shuntd.stop();
}

#[test]
fn promtool_accepts_the_metrics() {
    if !require_root() {
        return;
    }
    let Some(promtool) = promtool() else { return };
    let check = |page: &str| {
        let mut command = Command::new(&promtool);
        command
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), [output.stdout, output.stderr].concat())
    };
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).start();
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    stage.teach(&shuntd, &lab.lan().udp_to(4000, lab.wan().at(5000)).payload("to be counted"));
    let page = page(&shuntd);
    let (good, text) = check(&page);
    assert!(good && text.is_empty(), "{}\n{page}", String::from_utf8_lossy(&text));
    let (good, text) = check(&page.replace("shunt_packets_total", "shunt_packets"));
    assert!(!good && !text.is_empty(), "promtool accepts a malformed page");
}

#[test]
fn the_tcp_listener_serves_metrics_and_nothing_else() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().run("ip link set lo up");
    let shuntd = Shuntd::on(lab.router()).config("metrics = 9469").start();
    let curl = |words: &str| {
        let line = format!("curl --silent --max-time 10 -w '\\n%{{http_code}}' {words}");
        let text = lab.router().run(&line);
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.to_owned(), body.to_owned())
    };
    let (status, page) = curl("http://127.0.0.1:9469/metrics");
    assert!(status == "200" && page.contains("shunt_build_info{"), "{status} {page}");
    for (words, expected) in [
        ("http://127.0.0.1:9469/v1/status", "404"),
        ("-X POST http://127.0.0.1:9469/v1/stop", "403"),
        ("-X POST http://127.0.0.1:9469/metrics", "403"),
        ("-X DELETE http://127.0.0.1:9469/v1/static", "403"),
    ] {
        let (status, body) = curl(words);
        assert_eq!(status, expected, "{words}: {body}");
    }
    let other = format!("http://{}:9469/metrics", lab.wan().gateway_v4);
    assert!(
        lab.router().try_run(&format!("curl --silent --max-time 5 {other}")).is_err(),
        "only on loopback"
    );
    drop(shuntd);
    assert!(lab.router().try_run("curl --silent --max-time 5 http://127.0.0.1:9469/metrics").is_err());
}

#[test]
fn a_metrics_address_in_use_is_refused_in_one_line() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().run("ip link set lo up");
    let _taken = lab.router().within(|| TcpListener::bind("127.0.0.1:9469").unwrap());
    let refused = Shuntd::on(lab.router()).config("metrics = \"127.0.0.1:9469\"").try_start();
    let (status, text) = refused.map(|_| ()).unwrap_err();
    assert_eq!(status.code(), Some(FailureCode::AddressInUse.exit_code().into()), "{text}");
    assert!(text.contains("127.0.0.1:9469") && text.trim_end().lines().count() == 1, "{text}");
}

/// The counts of a flow are kept for `shunt conntrack` until conntrack deletes the connection, for at most four times
/// `max_flows`.
#[test]
fn uncounted_connections_are_reported() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    for timeout in ["udp_timeout", "udp_timeout_stream"] {
        lab.router().sysctl(&format!("netfilter/nf_conntrack_{timeout}"), 600);
    }
    let shuntd = Shuntd::on(lab.router()).engine("tc").config("max_flows = 64").start();
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let mut next = 10_000;
    // Six times the share of the table that one host may have; five times fit.
    for _ in 0..6 {
        for port in next..next + 48 {
            let packet = lab.lan().udp_to(port, lab.wan().at(5000)).payload("one of many");
            for _ in 0..4 {
                stage.pass(&packet);
            }
        }
        next += 48;
        assert_eq!(shuntd.status().counts_lost, 0, "{:#?}", shuntd.status());
        shuntd.flush();
        shuntd.wait_until("the table is empty", |s| s.flows.retired + s.flows.active + s.flows.pending == 0);
    }
    let status = shuntd.wait_until("counts have been lost", |s| s.counts_lost > 0);
    let lost = status.counts_lost;
    assert!(lost <= status.learned - 4 * 64, "{status:#?}");
    assert_eq!(values(&page(&shuntd))["shunt_counts_lost_total"], lost as f64);
    let text = String::from_utf8(shuntd.shunt(&["status"]).stdout).unwrap();
    assert!(text.contains(&format!("counters of {lost} removed flows are lost")), "{text}");
    shuntd.stop();
}
