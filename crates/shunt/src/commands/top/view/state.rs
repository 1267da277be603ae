//! What the user of `shunt top` has chosen to see.

use super::pane::{Order, Pane};
use shunt_api::Tuple;
use std::net::IpAddr;

/// What identifies a row from one sample to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowId {
    /// Protocol, original direction, and whether Linux forwards it.
    Connection(u8, Tuple, bool),
    Host(IpAddr),
    Port(String),
    Cause(String),
    Reason(String),
    Change(u64),
}

/// The choices of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) pane: Pane,
    /// The order of each pane.
    pub(crate) orders: [Order; Pane::ALL.len()],
    /// The selected row of each pane; none for the first one.
    pub(crate) selected: [Option<RowId>; Pane::ALL.len()],
    /// Words that a row must contain.
    pub(crate) filter: String,
    /// Whether keys go to the filter.
    pub(crate) is_typing: bool,
    /// Only connections of this host.
    pub(crate) host: Option<IpAddr>,
    pub(crate) is_paused: bool,
    /// A text in place of the table.
    pub(crate) detail: Option<Detail>,
    /// Why the screen is not up to date; none if it is.
    pub(crate) failure: Option<String>,
}

/// A text about one row, or the list of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Detail {
    pub(crate) title: String,
    pub(crate) text: String,
    /// The first line that is shown.
    pub(crate) scroll: u16,
    /// Whether the text is yet to come from the daemon.
    pub(crate) is_awaited: bool,
}

impl Default for View {
    fn default() -> Self {
        Self {
            pane: Pane::Connections,
            orders: Pane::ALL.map(Pane::first_order),
            selected: [const { None }; Pane::ALL.len()],
            filter: String::new(),
            is_typing: false,
            host: None,
            is_paused: false,
            detail: None,
            failure: None,
        }
    }
}

impl View {
    pub(crate) const fn order(&self) -> Order {
        self.orders[self.pane as usize]
    }

    pub(crate) const fn order_mut(&mut self) -> &mut Order {
        &mut self.orders[self.pane as usize]
    }

    pub(crate) const fn selected(&self) -> Option<&RowId> {
        self.selected[self.pane as usize].as_ref()
    }

    pub(crate) fn select(&mut self, row: Option<RowId>) {
        self.selected[self.pane as usize] = row;
    }
}

impl Detail {
    pub(crate) fn new(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { title: title.into(), text: text.into(), scroll: 0, is_awaited: false }
    }

    /// A text that the daemon was asked for.
    pub(crate) fn awaited(title: impl Into<String>) -> Self {
        Self { is_awaited: true, ..Self::new(title, "asking the daemon ...") }
    }
}
