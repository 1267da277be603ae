use super::sample;
use super::*;
use crate::{
    commands::{listed::Listed, why},
    golden::{JSON, TEXT, assert_golden, assert_golden_text},
};
use ratatui_core::{backend::TestBackend, buffer::Buffer, style::Color, terminal::Terminal};
use shunt_api::Connection;

const PLAIN: Look = Look { unicode: true, colour: true };
const ASCII: Look = Look { unicode: false, colour: false };
const SIZES: [(u16, u16); 3] = [(80, 24), (40, 12), (120, 40)];

fn draw_at((columns, rows): (u16, u16), top: Option<&Top>, view: &View, look: Look) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| {
            draw(frame, top, view, look);
        })
        .unwrap();
    terminal.backend().buffer().clone()
}

/// The lines of a screen, without blanks at their ends.
fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let line = |cells: &[ratatui_core::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned() + "\n"
    };
    buffer.content.chunks(width).map(line).collect()
}

fn on(pane: Pane) -> View {
    View { pane, ..View::default() }
}

fn why() -> View {
    let text = why::view::explanation_text(&why::sample::explanation());
    View { detail: Some(Detail::new("tcp 192.168.1.2:40000 > 198.18.0.2:443", text)), ..View::default() }
}

#[test]
fn the_texts_of_one_sample_match_their_golden_files() {
    assert_golden("golden/top-once.txt", &sample::top(), TEXT);
    assert_golden("golden/top-once.json", &sample::top(), JSON);
}

/// A screen, with runs of rows that are empty, or that the first screen has in the same place, counted instead.
fn shortened(screen: &str, first: &str) -> String {
    let rows = screen.lines().zip(first.lines().chain(std::iter::repeat("")));
    let counted: Vec<(&str, &str)> = rows
        .map(|(row, before)| match row {
            "" => (row, "empty"),
            _ if row == before => (row, "as on the first screen"),
            _ => (row, ""),
        })
        .collect();
    let runs = counted.chunk_by(|one, next| one.1 == next.1);
    runs.map(|run| match run[0].1 {
        "" => run.iter().map(|(row, _)| format!("{row}\n")).collect(),
        why => format!("({why}: {})\n", run.len()),
    })
    .collect()
}

#[test]
fn every_screen_matches_its_golden_file() {
    let top = sample::top();
    for size in SIZES {
        let (mut text, mut first) = (String::new(), None);
        let mut add = |name: &str, top, view: &View, look| {
            let screen = text_of(&draw_at(size, top, view, look));
            text += &format!("==== {name}\n{}", shortened(&screen, first.as_deref().unwrap_or("")));
            first.get_or_insert(screen);
        };
        for pane in Pane::ALL {
            add(&format!("{pane:?}"), Some(&top), &on(pane), PLAIN);
        }
        add("without UTF-8", Some(&top), &View::default(), ASCII);
        add("why", Some(&top), &why(), PLAIN);
        let filtered = View { filter: "udp".to_owned(), ..View::default() };
        add("filter", Some(&top), &filtered, PLAIN);
        add("typing", Some(&top), &View { is_typing: true, ..filtered }, PLAIN);
        let failure = Some("not running; start it with `shunt up`".to_owned());
        add("no daemon", Some(&top), &View { failure, ..View::default() }, PLAIN);
        add("first", None, &View::default(), PLAIN);
        assert_golden_text(&format!("golden/top-{}x{}.txt", size.0, size.1), &text);
    }
}

#[test]
fn no_screen_has_a_background_of_its_own_and_none_has_colours_without_colour() {
    let top = sample::top();
    let has = |view: &View, look, wrong: fn(&ratatui_core::buffer::Cell) -> bool| {
        draw_at((80, 24), Some(&top), view, look).content.iter().any(wrong)
    };
    let failure = View { failure: Some("gone".to_owned()), ..View::default() };
    for view in Pane::ALL.map(on).iter().chain([&why(), &failure]) {
        assert!(!has(view, PLAIN, |cell| cell.bg != Color::Reset), "{view:?}");
        assert!(!has(view, ASCII, |cell| cell.fg != Color::Reset || !cell.symbol().is_ascii()), "{view:?}");
    }
    assert!(has(&failure, PLAIN, |cell| cell.fg == Color::Red));
}

#[test]
fn any_size_can_be_drawn() {
    let top = sample::top();
    for size in [(0, 0), (1, 1), (3, 2), (5, 40), (400, 3), (13, 6), (39, 7)] {
        for view in Pane::ALL.map(on).iter().chain([&why()]) {
            draw_at(size, Some(&top), view, PLAIN);
        }
    }
}

#[test]
fn the_selected_row_stays_on_the_screen_and_keeps_its_place_in_another_order() {
    let mut top = sample::top();
    let Listed::Fast(first) = top.connections[2].clone() else { panic!() };
    top.connections.extend((0..500u16).map(|n| {
        let orig = shunt_api::Tuple { sport: n, ..first.orig };
        Listed::Fast(Connection { orig, rate_bps: 500 - u64::from(n), ..first.clone() })
    }));
    let mut view = View::default();
    view.select(Table::new(&top, &view).below(400));
    let selected = |view: &View| Table::new(&top, view).selected().unwrap().id();
    let chosen = selected(&view);
    let reversed = |view: &View| {
        let buffer = draw_at((80, 24), Some(&top), view, PLAIN);
        let line = buffer
            .content
            .chunks(80)
            .skip(4)
            .find(|line| line[0].modifier.contains(ratatui_core::style::Modifier::REVERSED));
        line.unwrap().iter().map(|cell| cell.symbol()).collect::<String>()
    };
    assert!(reversed(&view).starts_with("192.168.1.2:393 > "), "{}", reversed(&view));
    view.order_mut().descending = false;
    assert_eq!(selected(&view), chosen);
    assert!(reversed(&view).starts_with("192.168.1.2:393 > "));
    // The row is gone: the first one is selected.
    view.filter = "udp".to_owned();
    assert_eq!(Table::new(&top, &view).selected, 0);
}

#[test]
fn each_column_sorts_by_its_quantity() {
    let top = sample::top();
    for pane in Pane::ALL {
        for column in 0..pane.columns() {
            let mut view = on(pane);
            *view.order_mut() = Order { column, descending: false };
            let ids = |view: &View| Table::new(&top, view).rows.iter().map(Item::id).collect::<Vec<_>>();
            let up = ids(&view);
            view.order_mut().descending = true;
            assert_eq!(up.len(), ids(&view).len(), "{pane:?} {column}");
        }
    }
    let mut view = View::default();
    *view.order_mut() = Order { column: 3, descending: false };
    let rates: Vec<u64> = Table::new(&top, &view)
        .rows
        .iter()
        .map(|row| if let Item::Connection(c) = row { c.counts().rate_bps } else { panic!() })
        .collect();
    assert!(rates.is_sorted() && rates.len() == 8, "{rates:?}");
}

#[test]
fn a_host_filters_connections_by_either_end() {
    let top = sample::top();
    let rows = |host: &str| {
        let view = View { host: Some(host.parse().unwrap()), ..View::default() };
        Table::new(&top, &view).rows.len()
    };
    assert_eq!(
        (rows("192.168.1.2"), rows("198.18.0.2"), rows("2001:db8:2::9"), rows("192.0.2.1")),
        (7, 6, 1, 0)
    );
}
