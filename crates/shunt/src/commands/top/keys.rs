//! The keys of `shunt top` and their effects.

use crate::commands::{
    conntrack::view::name,
    top::view::{Detail, Item, Order, Pane, Table, Top, View},
};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use shunt_api::{Selection, Tuple};

/// The effect of a key on the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Draw the screen again.
    Draw,
    /// End.
    Quit,
    /// Ask the daemon why this connection is fast or slow.
    Why(Selection),
}

/// The longest filter.
const FILTER_MAX: usize = 100;

const HELP: &str = "\
1-5, Tab, left, right  choose a pane
up, down, j, k         choose a row; PgUp, PgDn, Home, End
Enter                  why a connection is fast or slow;
                       the connections of a host;
                       the text of other rows
s, S                   sort by the next or previous column
r                      reverse the order
/                      filter by words; Enter keeps the filter
Esc                    back; then no filter
p                      pause
q, Ctrl-C              quit";

/// Applies a key to the view. `page` is the number of rows on the screen.
pub(super) fn press(view: &mut View, top: Option<&Top>, page: usize, key: KeyEvent) -> Next {
    if key.kind == KeyEventKind::Release {
        return Next::Draw;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return if matches!(key.code, KeyCode::Char('c' | 'd')) { Next::Quit } else { Next::Draw };
    }
    if view.is_typing {
        type_filter(view, key.code);
        return Next::Draw;
    }
    let page = isize::try_from(page.max(1)).unwrap_or(isize::MAX);
    match key.code {
        KeyCode::Char('q') => return Next::Quit,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => view.detail = Some(Detail::new("keys", HELP)),
        KeyCode::Char('p' | ' ') => view.is_paused = !view.is_paused,
        KeyCode::Esc => go_back(view),
        KeyCode::Up | KeyCode::Char('k') => go(view, top, -1),
        KeyCode::Down | KeyCode::Char('j') => go(view, top, 1),
        KeyCode::PageUp => go(view, top, -page),
        KeyCode::PageDown => go(view, top, page),
        KeyCode::Home => go(view, top, isize::MIN),
        KeyCode::End => go(view, top, isize::MAX),
        KeyCode::Tab | KeyCode::Right => choose_pane(view, 1),
        KeyCode::BackTab | KeyCode::Left => choose_pane(view, Pane::ALL.len() - 1),
        KeyCode::Char(digit @ '1'..='5') => {
            view.detail = None;
            view.pane = Pane::ALL[digit as usize - '1' as usize];
        }
        _ if view.detail.is_some() => {}
        KeyCode::Char('/') => view.is_typing = true,
        KeyCode::Char('r') => view.order_mut().descending ^= true,
        KeyCode::Char('s') => sort_by(view, 1),
        KeyCode::Char('S') => sort_by(view, view.pane.columns() - 1),
        KeyCode::Enter => return open(view, top),
        _ => {}
    }
    Next::Draw
}

fn type_filter(view: &mut View, code: KeyCode) {
    match code {
        KeyCode::Enter => view.is_typing = false,
        KeyCode::Esc => {
            view.is_typing = false;
            view.filter.clear();
        }
        KeyCode::Backspace => drop(view.filter.pop()),
        KeyCode::Char(c) if !c.is_control() && view.filter.len() < FILTER_MAX => view.filter.push(c),
        _ => {}
    }
}

/// Closes the text; without one, shows all rows.
fn go_back(view: &mut View) {
    if view.detail.take().is_none() {
        view.filter.clear();
        view.host = None;
    }
}

/// Moves the selection down, or scrolls the text.
fn go(view: &mut View, top: Option<&Top>, rows: isize) {
    if let Some(detail) = &mut view.detail {
        let last = detail.text.lines().count().saturating_sub(1);
        detail.scroll =
            usize::from(detail.scroll).saturating_add_signed(rows).min(last).try_into().unwrap_or(0);
    } else if let Some(top) = top {
        let row = Table::new(top, view).below(rows);
        view.select(row);
    }
}

fn choose_pane(view: &mut View, further: usize) {
    view.detail = None;
    view.pane = Pane::ALL[(view.pane as usize + further) % Pane::ALL.len()];
}

fn sort_by(view: &mut View, further: usize) {
    let column = (view.order().column + further) % view.pane.columns();
    *view.order_mut() = Order { column, descending: view.pane.is_number(column) };
}

/// Shows more about the selected row.
fn open(view: &mut View, top: Option<&Top>) -> Next {
    let Some(item) = top.and_then(|top| Table::new(top, view).selected()) else { return Next::Draw };
    let detail = match item {
        Item::Connection(connection) => {
            let title = format!("{} {}", name(connection.protocol()), ends(&connection.orig()));
            view.detail = Some(Detail::awaited(title));
            return Next::Why(connection.selection());
        }
        Item::Host(host) => {
            view.host = Some(host.addr);
            view.pane = Pane::Connections;
            view.select(None);
            return Next::Draw;
        }
        Item::Port(port) => {
            Detail::new(port.name.as_str(), format!("engine {}: {}", port.engine, port.engine_reason))
        }
        Item::Cause(cause) => Detail::new("lasting cause", format!("{}\n\n{}", cause.what, cause.remedy)),
        Item::Reason(slow) => {
            Detail::new(slow.reason.as_str(), format!("{}\n\n{}", slow.meaning, slow.remedy))
        }
        Item::Change(change) => Detail::new(
            "change",
            format!(
                "{}\n\nIn the ten seconds after it, or until the next change, {} packets took the slow path because their action was out \
                 of date.",
                change.causes, change.stale_packets
            ),
        ),
    };
    view.detail = Some(detail);
    Next::Draw
}

fn ends(tuple: &Tuple) -> String {
    format!("{} > {}", tuple.source(), tuple.destination())
}
