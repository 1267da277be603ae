//! Linux still knows the connections that it does not see.

use crate::{ENGINES, Stage, daemon, daemon_with, silent, stage::nothing};
use shunt_api::Engine;
use shunt_testkit::{
    Crossing, Handshake, Process, Shuntd, Topology, require_root, rulesets, wait_for, wait_until,
};
use std::{
    fs::{self, File},
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

/// Several times the timeouts.
const TRAFFIC: Duration = Duration::from_secs(10);

/// What conntrack tells of entries that come from now on, and of their end.
pub(crate) struct Events {
    file: PathBuf,
    _process: Process,
}

impl Events {
    #[track_caller]
    pub(crate) fn of(lab: &Topology) -> Self {
        let file = std::env::temp_dir().join(format!("{}.events", lab.router().name()));
        let mut command = lab.router().command("conntrack");
        command.args(["-E", "-e", "NEW,DESTROY"]).stdout(File::create(&file).unwrap()).stderr(Stdio::null());
        let events = Self { file, _process: Process::start(command) };
        // It listens once it tells of an entry that is made for that.
        wait_until("conntrack tells", || {
            lab.router()
                .run("conntrack -I -p udp -s 192.0.2.1 -d 192.0.2.2 --sport 1 --dport 1 -t 9 || true");
            lab.router().run("conntrack -D -p udp -s 192.0.2.1 || true");
            events.count("NEW", "src=192.0.2.1 ") > 0
        });
        events
    }

    pub(crate) fn count(&self, kind: &str, what: &str) -> usize {
        let said = fs::read_to_string(&self.file).unwrap();
        said.lines().filter(|line| line.contains(&format!("[{kind}]")) && line.contains(what)).count()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

#[test]
fn an_active_fast_connection_stays_in_conntrack_and_a_finished_one_does_not() {
    if require_root() {
        let lab = silent(Topology::two_hosts_and_a_router(), rulesets::HOME_GATEWAY);
        for name in ["udp_timeout", "udp_timeout_stream"] {
            lab.router().sysctl(&format!("netfilter/nf_conntrack_{name}"), 3);
        }
        stays_while_it_is_active(&lab);
    }
}

/// UDP has timeouts that are not those of the sysctls.
const SHORT_TIMEOUTS: &str = r#"
table ip short {
	ct timeout datagrams { protocol udp; policy = { unreplied : 3, replied : 3 }; }
	chain prerouting {
		type filter hook prerouting priority mangle; policy accept;
		meta l4proto udp ct timeout set "datagrams"
	}
}
"#;

#[test]
fn so_does_one_with_a_short_timeout_of_its_own() {
    if require_root() {
        let lab = silent(Topology::two_hosts_and_a_router(), rulesets::HOME_GATEWAY);
        lab.router().nft(SHORT_TIMEOUTS);
        stays_while_it_is_active(&lab);
    }
}

#[track_caller]
fn stays_while_it_is_active(lab: &Topology) {
    lab.router().sysctl("netfilter/nf_conntrack_tcp_timeout_established", 5);
    let events = Events::of(lab);
    let shuntd = daemon_with(lab, Engine::Xdp, "reprove = \"10s\"");
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let udp = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("one way only");
    let syn = lab.lan().tcp_to(4000, lab.wan().at(80), 0);
    let connection = Handshake::open(&there, &back, &syn, lab.wan());
    let tcp = connection.from_client(&syn, 0, "data that is never answered");
    stage.teach(&shuntd, &udp);
    stage.teach(&shuntd, &tcp);

    let before = shuntd.status().packets;
    let since = Instant::now();
    let mut sent = 0;
    // A packet of each about every ten milliseconds.
    wait_for(TRAFFIC, || {
        if since.elapsed() > Duration::from_millis(10) * sent {
            stage.pass(&udp);
            stage.pass(&tcp);
            sent += 1;
        }
        None::<()>
    });
    let now = shuntd.status().packets;
    let fast = now.fast - before.fast;
    assert!(fast > u64::from(sent), "of twice {sent} only {fast} were fast: {:#?}", shuntd.status());
    let told = |kind| (events.count(kind, " dport=5000 "), events.count(kind, " dport=80 "));
    assert_eq!((told("NEW"), told("DESTROY")), ((1, 1), (0, 0)), "an entry timed out");
    wait_until("conntrack has forgotten both", || {
        // Whoever looks at the entries makes conntrack drop those that have timed out.
        lab.router().run("conntrack -L");
        told("DESTROY") == (1, 1)
    });
    shuntd.stop();
}

#[test]
fn a_fast_connection_that_is_deleted_from_conntrack_is_judged_anew() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_hosts_and_a_router(), rulesets::HOME_GATEWAY);
    let events = Events::of(&lab);
    let shuntd = Shuntd::on(lab.router()).config("reprove = \"200ms\"").start();
    let (stage, packet) = Stage::from_lan(&lab);
    stage.teach(&shuntd, &packet);
    lab.router().run("conntrack -D -p udp --dport 5000");
    wait_until("it has an entry again", || {
        stage.pass(&packet);
        events.count("NEW", "dport=5000") == 2
    });
    shuntd.stop();
}

/// Only established connections pass, and new ones to ports that are welcome.
const WELCOME: &str = r"
table inet filter {
	set welcome { type inet_service; elements = { 5000 } }
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established accept
		udp dport @welcome accept
	}
}
";

#[test]
fn a_deleted_connection_that_would_not_be_accepted_again_stops_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::two_hosts_and_a_router(), WELCOME);
        let shuntd = daemon(&lab, engine);
        let (stage, packet) = Stage::from_lan(&lab);
        let seen = stage.pass(&packet);
        let back = Stage::new(lab.wan(), &[lab.lan()]);
        back.pass(&lab.wan().answer_to(&seen).payload("from the wan"));
        lab.router().run("nft delete element inet filter welcome '{ 5000 }'");
        stage.teach(&shuntd, &packet);
        lab.router().run("conntrack -D -p udp --dport 5000");
        stage.react("conntrack -D", &packet, nothing);
        stage.never_fast(&shuntd, &packet, nothing);
        shuntd.stop();
    }
}
