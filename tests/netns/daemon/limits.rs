//! Rules that drop packets by what they count: they let no more packets pass than with Linux alone, and are named.

use shunt_api::{Engine, Status};
use shunt_testkit::{
    ALL_ENGINES, Crossing, ENGINES, Handshake, NetNs, Shunt, Shuntd, Stage, Topology, daemon, daemon_with,
    require_root, rulesets, silent_router,
};
use shunt_wire::Packet;

/// The number of packets that each limit lets pass. No machine is so slow that an hour passes in the meantime.
const BURST: usize = 20;
const SENT: usize = 100;

/// Drops all but the first packets to UDP port 5000, before any rule has accepted them.
const FLOOD: &str = "nft 'table inet flood { chain in { type filter hook prerouting priority mangle; \
                     udp dport 5000 limit rate over 1/hour burst 20 packets drop; }; }'";

fn start(engine: Engine, config: &str, rules: &str) -> (Topology, Stage, Packet, Shuntd) {
    let lab = silent_router(rulesets::OPEN);
    lab.router().run(rules);
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("from the lan");
    let shuntd = daemon_with(&lab, engine, config);
    shuntd.wait_until("the engine serves both ports", |status: &Status| {
        status.ports.iter().all(|port| port.engine == engine)
    });
    (lab, stage, packet, shuntd)
}

fn passed(stage: &Stage, packet: &Packet) -> usize {
    (0..SENT).map(|_| stage.send(packet)[0].len()).sum()
}

fn why(shuntd: &Shuntd) -> String {
    String::from_utf8(shuntd.shunt(&["why", "--dport", "5000"]).stdout).unwrap()
}

/// The limits that status names, as `place: statement: traffic`, without handles.
fn named(status: &Status) -> Vec<String> {
    let name = |note: &shunt_api::RuleNote| {
        format!("{} {} {}: {}: {}", note.family, note.table, note.chain, note.statement, note.traffic)
    };
    status.ruleset.limits.iter().map(name).collect()
}

#[test]
fn a_limit_passes_as_many_packets_as_with_linux_alone_and_other_traffic_is_fast() {
    if !require_root() {
        return;
    }
    for engine in ALL_ENGINES {
        let (lab, stage, packet, shuntd) = start(engine, "", FLOOD);
        assert_eq!(passed(&stage, &packet), BURST, "{engine}");
        let status = shuntd.status();
        assert_eq!(named(&status), ["inet flood in: limit: UDP over IPv4 and IPv6"]);
        assert!(status.reasons["ruleset"] > 0, "{status:#?}");
        assert!(why(&shuntd).contains("(`limit` in inet flood in handle "), "{}", why(&shuntd));

        let (lan, wan) = (lab.lan(), lab.wan());
        let (there, back) = (Crossing::between(lan, wan), Crossing::between(wan, lan));
        let syn = lan.tcp_to(4001, wan.at(80), 0);
        let connection = Handshake::open(&there, &back, &syn, wan);
        there.teach(&shuntd, &connection.from_client(&syn, 0, []));
        shuntd.stop();
    }
}

#[test]
fn a_limit_that_is_added_later_ends_the_flows_that_it_drops() {
    if !require_root() {
        return;
    }
    for engine in ALL_ENGINES {
        let (lab, stage, packet, shuntd) = start(engine, "", "true");
        stage.teach(&shuntd, &packet);
        lab.router().run(FLOOD);
        assert!(passed(&stage, &packet) <= BURST, "{engine}");
        lab.router().run("nft delete table inet flood");
        stage.teach(&shuntd, &packet);
        assert_eq!(named(&shuntd.status()), [""; 0]);
        shuntd.stop();
    }
}

/// Each passes the first 20 packets to UDP port 5000, or their bytes.
const LIMITS: [(&str, &str); 10] = [
    (
        "nft 'table ip flood { chain in { type filter hook prerouting priority mangle; \
         udp dport 5000 quota over 800 bytes drop; }; }'",
        "ip flood in: quota: UDP over IPv4",
    ),
    (
        "nft 'table ip flood { chain forward { type filter hook forward priority mangle; \
         udp dport 5000 limit rate 1/hour burst 20 packets accept; udp dport 5000 drop; }; }'",
        "ip flood forward: limit: UDP over IPv4",
    ),
    (
        "nft 'table ip flood { chain forward { type filter hook forward priority mangle; policy drop; \
         ip protocol icmp accept; meta l4proto udp limit rate 1/hour burst 20 packets accept; }; }'",
        "ip flood forward: limit: UDP over IPv4",
    ),
    (
        "nft 'table ip flood { chain counts { limit rate 1/hour burst 20 packets return; drop; }; \
         chain forward { type filter hook forward priority mangle; udp dport 5000 jump counts; }; }'",
        "ip flood counts: limit: UDP over IPv4",
    ),
    (
        "nft 'table ip flood { set seen { type ipv4_addr; flags dynamic; }; \
         chain forward { type filter hook forward priority mangle; \
         udp dport 5000 add @seen { ip saddr limit rate over 1/hour burst 20 packets } drop; }; }'",
        "ip flood forward: limit: UDP over IPv4",
    ),
    (
        "iptables-nft -t mangle -A PREROUTING -p udp --dport 5000 -m hashlimit --hashlimit-above 1/hour \
         --hashlimit-burst 20 --hashlimit-name flood -j DROP",
        "ip mangle PREROUTING: hashlimit: UDP over IPv4",
    ),
    (
        "iptables-legacy -t raw -A PREROUTING -p udp --dport 5000 -m limit --limit 1/hour --limit-burst 20 -j ACCEPT; \
         iptables-legacy -t raw -A PREROUTING -p udp --dport 5000 -j DROP",
        "ip raw PREROUTING: limit: UDP over IPv4",
    ),
    // What the limit changes decides later whether the packet passes.
    (
        "nft 'table ip flood { chain untracked { type filter hook prerouting priority raw; \
         udp dport 5000 limit rate over 1/hour burst 20 packets notrack; }; \
         chain forward { type filter hook forward priority mangle; udp dport 5000 ct state untracked drop; }; }'",
        "ip flood untracked: limit: UDP over IPv4",
    ),
    (
        "nft 'table ip flood { chain marked { type filter hook prerouting priority mangle; \
         udp dport 5000 limit rate over 1/hour burst 20 packets ip dscp set 8; }; \
         chain forward { type filter hook forward priority mangle; udp dport 5000 ip dscp 8 drop; }; }'",
        "ip flood marked: limit: UDP over IPv4",
    ),
    (
        "iptables-legacy -t mangle -A PREROUTING -p udp --dport 5000 -m limit --limit 1/hour --limit-burst 20 -j ACCEPT; \
         iptables-legacy -t mangle -A PREROUTING -p udp --dport 5000 -j DSCP --set-dscp 8; \
         iptables-legacy -t mangle -A FORWARD -p udp --dport 5000 -m dscp --dscp 8 -j DROP",
        "ip mangle PREROUTING: limit: UDP over IPv4",
    ),
];

#[test]
fn every_kind_of_limit_passes_as_many_packets_as_with_linux_alone() {
    if !require_root() {
        return;
    }
    for (rules, name) in LIMITS {
        let (_lab, stage, packet, shuntd) = start(ENGINES[0], "", rules);
        assert_eq!(passed(&stage, &packet), BURST, "{rules}");
        assert_eq!(named(&shuntd.status()), [name], "{rules}");
        shuntd.stop();
    }
}

/// The rest of the traffic is accepted before the limit, and an unanswered flow would have been learned without it.
#[test]
fn a_limit_on_new_connections_leaves_answered_ones_fast() {
    if !require_root() {
        return;
    }
    let rules = "nft 'table inet flood { chain forward { type filter hook forward priority mangle; \
                 ct state established,related accept; udp dport 5000 limit rate over 1/hour burst 20 packets drop; }; }'";
    for engine in ALL_ENGINES {
        let (lab, stage, packet, shuntd) = start(engine, "", rules);
        let (lan, wan) = (lab.lan(), lab.wan());
        let unanswered = lan.udp_to(4001, wan.at(5000)).payload("from the lan");
        assert_eq!(passed(&stage, &unanswered), BURST, "{engine}");
        assert_eq!(shuntd.status().packets.fast, 0, "{engine}");
        assert!(shuntd.status().refusals["unreplied"] > 0);
        assert!(why(&shuntd).contains("(`limit` in inet flood forward handle "), "{}", why(&shuntd));
        let name = "inet flood forward: limit: UDP before its first answer over IPv4 and IPv6";
        assert_eq!(named(&shuntd.status()), [name]);

        // A new limit has room for the first packet of another connection.
        lab.router().run(&format!("nft delete table inet flood; {rules}"));
        stage.pass(&packet);
        Crossing::between(wan, lan).pass(&wan.udp_to(5000, lan.at(4000)));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

/// `limits = "ignore"`: the flow is fast, and the rule is listed among those that fast packets bypass.
#[test]
fn limits_can_be_ignored() {
    if !require_root() {
        return;
    }
    let (_lab, stage, packet, shuntd) = start(ENGINES[0], "limits = \"ignore\"\n", FLOOD);
    stage.teach(&shuntd, &packet);
    assert_eq!(passed(&stage, &packet), SENT);
    let ruleset = shuntd.status().ruleset;
    assert_eq!((&ruleset.limits, &ruleset.bypassed[0].statement), (&vec![], &"limit".to_owned()));
    shuntd.stop();
}

/// What `up`, `up --dry-run`, `probe` and `status` say about a ruleset.
fn texts(router: &NetNs) -> [String; 4] {
    let shunt = Shunt::on(router);
    let before = ["up --dry-run", "probe", "up", "status"].map(|command| shunt.done(command));
    shunt.done("down");
    before
}

#[test]
fn the_rule_is_named_before_the_start_and_after() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    lab.router().run(FLOOD);
    let listed = lab.router().run("nft -a list chain inet flood in");
    let handle = listed.lines().find_map(|line| line.split_once("drop # handle ")).unwrap().1;
    for text in texts(lab.router()) {
        let line = format!(
            "traffic by UDP over IPv4 and IPv6 stays slow: `limit` in inet flood in handle {handle} drops packets"
        );
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

#[test]
fn rules_that_change_packets_are_named_before_the_start_and_after() {
    if !require_root() {
        return;
    }
    for (rule, line) in [
        (
            "ip ttl set 64",
            "traffic by TCP and UDP over IPv4 stays slow where `ip ttl set` in inet change out handle ",
        ),
        (
            "ip dscp set cs1",
            "traffic by TCP and UDP over IPv4 stays slow where `ip dscp set` in inet change out handle ",
        ),
        (
            "udp dport 5000 @th,64,16 set 7",
            "traffic by UDP over IPv4 and IPv6 stays slow where `payload set` in inet change out handle ",
        ),
    ] {
        let lab = silent_router(rulesets::OPEN);
        lab.router().run(&format!(
            "nft 'table inet change {{ chain out {{ type filter hook postrouting priority mangle; {rule}; }}; }}'"
        ));
        for text in texts(lab.router()) {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let probed = Shunt::on(lab.router()).done("probe");
        assert!(probed.contains("gain\nthe traffic under `what would stay slow` gains nothing;"), "{probed}");
        // A packet that such a rule changes is never fast.
        let stage = Stage::new(lab.lan(), &[lab.wan()]);
        let shuntd = daemon(&lab, ENGINES[0]);
        let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("from the lan");
        stage.never_fast(&shuntd, &packet, |_| true);
        shuntd.stop();
    }
}

/// With Linux, the element never expires. A fast flow would refresh it once in two seconds, with each proof.
#[test]
fn an_element_that_a_rule_refreshes_stays_in_its_set() {
    if !require_root() {
        return;
    }
    let rules = "nft 'table ip seen { set hosts { type ipv4_addr; flags dynamic,timeout; timeout 1s; }; \
                 chain forward { type filter hook forward priority mangle; update @hosts { ip saddr }; }; }'";
    let (lab, stage, packet, shuntd) = start(ENGINES[0], "", rules);
    stage.teach(&shuntd, &packet);
    let started = std::time::Instant::now();
    let mut looks = 0;
    while started.elapsed() < std::time::Duration::from_secs(4) {
        let sent = std::time::Instant::now();
        stage.send(&packet);
        let listed = lab.router().run("nft list set ip seen hosts");
        // On a machine that stood still, the element may have expired with Linux alone.
        if sent.elapsed() < std::time::Duration::from_millis(500) {
            assert!(listed.contains("192.168.1.2"), "{listed}");
            looks += 1;
        }
    }
    assert!(looks > 0);
    assert!(shuntd.status().packets.fast > 0);
    shuntd.stop();
}

#[test]
fn a_rule_that_traces_packets_is_listed_as_bypassed() {
    if !require_root() {
        return;
    }
    let rules = "nft 'table ip look { chain forward { type filter hook forward priority mangle; meta nftrace set 1; }; }'";
    let (_lab, stage, packet, shuntd) = start(ENGINES[0], "", rules);
    stage.teach(&shuntd, &packet);
    let bypassed = shuntd.status().ruleset.bypassed;
    assert_eq!(bypassed.iter().map(|note| note.statement.as_str()).collect::<Vec<_>>(), ["meta nftrace"]);
    shuntd.stop();
}
