use super::{super::arguments::parse_args, keys::*, *};
use crate::commands::{
    flows::sample::{tcp, udp6},
    status::sample::status,
    top::view::{Pane, View, sample::top},
};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use shunt_api::{Connection, HistoryRow, HistoryTable, HostNames, Instance, SlowTable, Status};
use std::time::Instant;

fn sample(at: Instant, connections: Vec<Connection>) -> Sample {
    Sample { at, status: status(), connections, slow: SlowTable::default() }
}

/// A connection with one flow that has sent this much.
fn counted(packets: u64, bytes: u64, age_s: u64) -> Connection {
    let mut connection = udp6();
    let flow = &mut connection.directions[0];
    (flow.packets, flow.bytes, flow.age_s) = (packets, bytes, age_s);
    connection
}

/// The rates of the only connection, in packets and bits per second over two seconds.
fn rates(before: Vec<Connection>, now: Connection) -> (u64, u64) {
    let start = Instant::now();
    let later = start + Duration::from_secs(2);
    let measured = sample::connections(&sample(start, before), &sample(later, vec![now]));
    (measured[0].rate_pps, measured[0].rate_bps)
}

#[test]
fn a_rate_is_the_difference_between_two_samples() {
    assert_eq!(rates(vec![counted(1000, 50_000, 60)], counted(1200, 250_000, 62)), (100, 800_000));
    assert_eq!(rates(vec![counted(1000, 50_000, 60)], counted(1000, 50_000, 62)), (0, 0));
}

#[test]
fn a_new_flow_counts_from_zero_and_one_that_was_not_among_the_busiest_has_the_rate_of_the_daemon() {
    assert_eq!(rates(vec![], counted(10, 1000, 1)), (5, 4000));
    let measured = &udp6().directions[0];
    assert_eq!(rates(vec![], counted(10_000, 1_000_000, 60)), (measured.rate_pps, measured.rate_bps));
    // In place of another flow, whose counters were larger.
    assert_eq!(rates(vec![counted(1000, 50_000, 60)], counted(10, 1000, 0)), (5, 4000));
    // Counters that went back, though the flow is old.
    assert_eq!(rates(vec![counted(1000, 50_000, 60)], counted(10, 1000, 62)), (0, 0));
}

#[test]
fn the_flows_of_a_connection_are_compared_each_with_its_own_past() {
    let start = Instant::now();
    let mut now = tcp();
    now.directions[0].packets += 30;
    now.directions[1].bytes += 2000;
    let last = sample(start, vec![udp6(), tcp()]);
    let measured = sample::connections(&last, &sample(start + Duration::from_secs(1), vec![udp6(), now]));
    let [first, second] = &measured[..] else { panic!() };
    assert_eq!((first.proto, first.rate_pps, first.rate_bps), (tcp().proto, 30, 16_000));
    assert_eq!((first.directions[0].rate_pps, first.directions[1].rate_bps), (30, 16_000));
    assert_eq!((second.rate_pps, second.rate_bps), (0, 0));
}

#[test]
fn a_port_that_comes_or_begins_again_does_not_spoil_the_total() {
    let start = Instant::now();
    let span = |now: Status| {
        let [before, now] = [(start, status()), (start + Duration::from_secs(1), now)]
            .map(|(at, status)| Sample { at, status, connections: Vec::new(), slow: SlowTable::default() });
        let span = sample::Span::between(&before, &now);
        sample::total(&before.status, &now.status, span)
    };
    let mut later = status();
    later.ports[0].packets.xdp += 900;
    later.ports[0].packets.slow += 100;
    later.ports[0].bytes.fast += 90_000;
    let rates = span(later.clone());
    assert_eq!((rates.fast_pps, rates.slow_pps, rates.fast_bps), (900, 100, 720_000));
    assert_eq!(rates.fast_share, Some(0.9));
    // The other port went, and its packets with it.
    later.ports.pop();
    assert_eq!(span(later.clone()), rates);
    // The port was made again and has counted 7 packets since.
    later.ports[0].packets = shunt_api::PortPackets { xdp: 7, ..Default::default() };
    later.ports[0].bytes = Default::default();
    assert_eq!(span(later).fast_pps, 7);
    assert_eq!(span(status()).fast_share, None);
}

#[test]
fn the_history_begins_again_with_another_daemon_and_gives_each_change_its_cost() {
    let (mut history, names, mut at) = (History::default(), HostNames::default(), Instant::now());
    let mut add = |status: &Status| {
        at += Duration::from_secs(1);
        history.add(
            Sample { at, status: status.clone(), connections: vec![tcp()], slow: SlowTable::default() },
            &names,
        )
    };
    let mut now = status();
    assert!(add(&now).is_none());
    *now.epoch_moves.get_mut("ruleset").unwrap() += 2;
    now.epoch_moves.insert("route".to_owned(), 1);
    now.reasons.insert("stale".to_owned(), 40);
    now.ports[0].packets.xdp += 60;
    now.ports[0].packets.slow += 40;
    let top = add(&now).unwrap();
    assert_eq!((top.changes.len(), top.changes[0].causes.as_str()), (1, "route, ruleset 2"));
    let change = &top.changes[0];
    assert_eq!((change.stale_packets, change.lowest_share, change.ago_s), (40, Some(0.6), 0));
    now.reasons.insert("stale".to_owned(), 45);
    now.ports[0].packets.xdp += 100;
    let top = add(&now).unwrap();
    let change = &top.changes[0];
    assert_eq!((change.stale_packets, change.lowest_share, change.ago_s), (45, Some(0.6), 1));
    assert_eq!((top.stale_packets, top.hosts.len()), (45, 2));
    // Stale packets ten seconds later are not charged to the change.
    (0..10).for_each(|_| drop(add(&now)));
    now.reasons.insert("stale".to_owned(), 99);
    assert_eq!(add(&now).unwrap().changes[0].stale_packets, 45);
    let another = Status { pid: 9, ..status() };
    assert!(add(&another).is_none());
    let top = add(&another).unwrap();
    assert_eq!(top.changes[0].causes, "the daemon was started again");
    assert_eq!((top.changes.len(), top.changes[1].stale_packets, top.shares.len()), (2, 45, 15));
}

fn typed(view: &mut View, keys: &str) -> Next {
    let top = top();
    let mut next = Next::Draw;
    for key in keys.split(' ') {
        let code = match key {
            "enter" => KeyCode::Enter,
            "esc" => KeyCode::Esc,
            "tab" => KeyCode::Tab,
            "left" => KeyCode::Left,
            "down" => KeyCode::Down,
            "end" => KeyCode::End,
            "back" => KeyCode::Backspace,
            _ => KeyCode::Char(key.chars().next().unwrap()),
        };
        next = press(view, Some(&top), 10, KeyEvent::new(code, KeyModifiers::NONE));
    }
    next
}

#[test]
fn keys_choose_panes_rows_and_orders() {
    let mut view = View::default();
    typed(&mut view, "tab tab");
    assert_eq!(view.pane, Pane::Ports);
    typed(&mut view, "left left left");
    assert_eq!(view.pane, Pane::Changes);
    typed(&mut view, "1 s");
    assert_eq!((view.order().column, view.order().descending), (4, true));
    typed(&mut view, "S S r");
    assert_eq!((view.order().column, view.order().descending), (2, true));
    assert_eq!(typed(&mut view, "p down q"), Next::Quit);
    assert!(view.is_paused && view.selected().is_some());
    let top = top();
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    assert_eq!(press(&mut view, Some(&top), 0, control('c')), Next::Quit);
    assert_eq!(press(&mut view, None, 0, KeyEvent::new(KeyCode::End, KeyModifiers::NONE)), Next::Draw);
}

#[test]
fn a_filter_takes_keys_until_enter_and_escape_ends_it() {
    let mut view = View::default();
    assert_eq!(typed(&mut view, "/ q u x back"), Next::Draw);
    assert_eq!((view.filter.as_str(), view.is_typing), ("qu", true));
    typed(&mut view, "enter");
    assert_eq!((view.filter.as_str(), view.is_typing), ("qu", false));
    typed(&mut view, "esc");
    assert_eq!(view.filter, "");
    typed(&mut view, "/ a esc");
    assert_eq!((view.filter.as_str(), view.is_typing), ("", false));
}

#[test]
fn enter_asks_why_or_opens_the_row() {
    let mut view = View::default();
    let Next::Why(selection) = typed(&mut view, "enter") else { panic!() };
    assert_eq!(selection.query(), "src=192.168.1.2&dst=198.18.0.2&sport=40000&dport=443&proto=tcp");
    assert!(view.detail.is_some());
    typed(&mut view, "esc 2 end enter");
    assert_eq!((view.pane, view.host), (Pane::Connections, Some("2001:db8:1::2".parse().unwrap())));
    typed(&mut view, "esc 4 enter");
    assert!(view.host.is_none() && view.detail.take().unwrap().text.contains("tun0 is a tun device"));
    typed(&mut view, "5 down enter");
    let text = view.detail.take().unwrap().text;
    assert!(text.starts_with("link\n") && text.contains("14 packets took the slow path"), "{text}");
    typed(&mut view, "3 enter");
    assert!(view.detail.as_ref().unwrap().text.starts_with("engine "));
    typed(&mut view, "? down down");
    assert_eq!(view.detail.unwrap().scroll, 2);
}

#[test]
fn a_screen_needs_a_terminal_and_json_needs_once() {
    let resolve = |words: &str, json| {
        let instance = Instance::default();
        let context = Context { client: Client::new(&instance), instance, json };
        parse_args::<TopArgs>(words).unwrap().resolve(&context)
    };
    assert!(resolve("--once", true).is_ok() && resolve("--once --limit 3", false).is_ok());
    assert!(resolve("", true).unwrap_err().to_string().contains("--json needs --once"));
    assert!(parse_args::<TopArgs>("--limit 3").is_err());
    for wrong in ["--interval 99ms", "--interval 61s", "--interval x"] {
        assert!(parse_args::<TopArgs>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_first_variable_of_the_locale_that_is_set_decides_the_characters() {
    let look = |set: &[(&str, &str)]| {
        let found =
            |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let look = session::look(found);
        (look.unicode, look.colour)
    };
    assert_eq!(look(&[]), (false, true));
    assert_eq!(look(&[("LANG", "de_DE.UTF-8"), ("NO_COLOR", "")]), (true, true));
    assert_eq!(look(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("NO_COLOR", "1")]), (true, false));
    assert_eq!(look(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]), (false, true));
}

#[test]
fn the_chart_begins_with_the_history_of_the_daemon() {
    let row = |at, seconds, fast_share| HistoryRow { at, seconds, fast_share, ..HistoryRow::default() };
    let rows = vec![row(1000, 60.0, Some(0.5)), row(1080, 10.0, None), row(1090, 30.0, Some(0.9))];
    let table = HistoryTable { rows, ..HistoryTable::default() };
    let mut history = History::default();
    history.begin_with(&table, Duration::from_secs(10));
    let start = Instant::now();
    assert!(history.add(sample(start, vec![]), &HostNames::default()).is_none());
    let top = history.add(sample(start + Duration::from_secs(10), vec![]), &HostNames::default()).unwrap();
    let (half, most) = (Some(0.5), Some(0.9));
    // A gap of 20 s, in which no daemon ran, and 10 s without packets.
    let expected = [half, half, half, half, half, half, None, None, None, most, most, most, None];
    assert_eq!(top.shares, expected);
    let long = HistoryTable { rows: vec![row(0, 86_400.0, half)], ..HistoryTable::default() };
    history.begin_with(&long, Duration::from_millis(100));
    assert_eq!(history.add(sample(start, vec![]), &HostNames::default()).unwrap().shares.len(), 600);
}
