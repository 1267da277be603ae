//! The commands of the guides for users (docs/guide), typed one after the other as a reader would, print what the
//! guides show.

#![expect(clippy::unwrap_used, reason = "a test fails where what it expects is not there")]

mod likeness;
mod page;
mod scene;

use scene::Scene;
use shunt_testkit::{require_root, tree::root};
use std::fs;

/// What [the first guide](../../../docs/guide/first-router.md) sets up.
const ROUTER: &str = "
    ip address add 192.168.1.1/24 dev lan0; ip link set lan0 up
    ip address add 198.51.100.2/24 dev wan0; ip link set wan0 up
    sysctl -q -w net.ipv4.ip_forward=1
    nft -f - <<'RULES'
    table inet filter {
        chain forward {
            type filter hook forward priority filter; policy drop;
            ct state established,related accept
            iifname { \"lan0\", \"docker0\" } oifname \"wan0\" accept
        }
    }
    table ip nat {
        chain postrouting {
            type nat hook postrouting priority srcnat;
            oifname \"wan0\" masquerade
        }
    }
RULES
";

/// The text of a guide.
fn text(name: &str) -> String {
    let path = root().join("docs/guide").join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Follows a guide on a router that is prepared by a script.
fn follow(name: &str, preparation: &str, text: &str) {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    scene.prepare(preparation);
    scene.follow(name, &page::read(text));
}

#[test]
fn your_first_router() {
    follow("first-router.md", "true", &text("first-router.md"));
}

/// On a kernel without cake, tbf takes its place, which every kernel of the tests has.
#[test]
fn a_home_router_with_sqm() {
    if !require_root() {
        return;
    }
    let mut guide = text("home-sqm.md");
    let scene = Scene::new();
    if !scene.has("tc qdisc add dev lan0 root cake && tc qdisc del dev lan0 root") {
        println!("this kernel has no cake; tbf shapes instead");
        for (rate, what) in [("95mbit", "cake bandwidth 95mbit"), ("380mbit", "cake bandwidth 380mbit")] {
            guide = guide.replace(what, &format!("tbf rate {rate} burst 100k latency 20ms"));
        }
        guide = guide
            .replace("matchall", "u32 match u32 0 0")
            .replace("tc u32 match u32 0 0 filter", "tc u32 filter");
        guide = guide
            .replace("qdisc cake 8001: root refcnt 2 bandwidth 380Mbit ...", "...")
            .replace("cake", "tbf");
    }
    scene.prepare(ROUTER);
    scene.follow("home-sqm.md", &page::read(&guide));
}

#[test]
fn containers() {
    let docker =
        "ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0; ip link set docker0 up";
    follow("containers.md", &format!("{ROUTER}{docker}"), &text("containers.md"));
}

#[test]
fn the_nat_box_of_a_provider() {
    follow("provider-nat.md", ROUTER, &text("provider-nat.md"));
}

#[test]
fn a_board_from_cross_build_to_numbers() {
    follow("board.md", ROUTER, &text("board.md"));
}

#[test]
fn is_it_helping() {
    follow("is-it-helping.md", ROUTER, &text("is-it-helping.md"));
}

#[test]
fn why_is_this_connection_slow() {
    follow("why-slow.md", ROUTER, &text("why-slow.md"));
}

#[test]
fn metrics() {
    follow("metrics.md", ROUTER, &text("metrics.md"));
}

#[test]
fn how_it_compares() {
    follow("comparison.md", ROUTER, &text("comparison.md"));
}

#[test]
fn who_uses_the_line() {
    follow("usage.md", ROUTER, &text("usage.md"));
}

#[test]
fn is_it_my_router_or_my_provider() {
    follow("quality.md", ROUTER, &text("quality.md"));
}
