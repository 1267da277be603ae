//! The panes of the screen and their columns.

/// The tables of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pane {
    Connections,
    Hosts,
    Ports,
    Slow,
    Changes,
}

/// The column that a table is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) column: usize,
    pub(crate) descending: bool,
}

/// A column of a pane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Width in characters; 0 for the column that takes what is left.
    pub(super) width: u16,
    pub(super) is_number: bool,
    /// The narrowest terminal that shows the column.
    pub(super) from: u16,
}

const fn text(title: &'static str, width: u16, from: u16) -> Column {
    Column { title, width, is_number: false, from }
}

const fn number(title: &'static str, width: u16, from: u16) -> Column {
    Column { title, width, is_number: true, from }
}

impl Pane {
    pub(crate) const ALL: [Self; 5] =
        [Self::Connections, Self::Hosts, Self::Ports, Self::Slow, Self::Changes];

    /// The name of the pane, and a short one for narrow terminals.
    pub(super) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Connections => ("connections", "conns"),
            Self::Hosts => ("hosts", "hosts"),
            Self::Ports => ("ports", "ports"),
            Self::Slow => ("why slow", "slow"),
            Self::Changes => ("changes", "change"),
        }
    }

    /// The number of its columns.
    pub(crate) const fn columns(self) -> usize {
        columns(self).len()
    }

    /// Whether this column has numbers, which are sorted from the largest on.
    pub(crate) fn is_number(self, column: usize) -> bool {
        columns(self).get(column).is_some_and(|column| column.is_number)
    }

    /// The order of the pane until the user chooses another.
    pub(super) const fn first_order(self) -> Order {
        match self {
            Self::Connections => Order { column: 3, descending: true },
            Self::Hosts => Order { column: 3, descending: true },
            Self::Ports => Order { column: 0, descending: false },
            Self::Slow => Order { column: 1, descending: true },
            Self::Changes => Order { column: 0, descending: false },
        }
    }
}

const CONNECTIONS: &[Column] = &[
    text("connection", 0, 0),
    text("proto", 5, 60),
    text("engine", 6, 52),
    number("bit/s", 11, 0),
    number("packets/s", 10, 70),
    text("state or why slow", 18, 110),
    number("bytes", 14, 130),
    number("age", 13, 100),
];
const HOSTS: &[Column] = &[
    text("host", 0, 0),
    text("name", 14, 60),
    number("conns", 6, 44),
    number("bit/s", 11, 0),
    number("sent", 11, 70),
    number("received", 11, 70),
    number("packets/s", 10, 100),
];
const PORTS: &[Column] = &[
    text("port", 0, 0),
    text("engine", 6, 0),
    number("bit/s", 11, 0),
    number("fast", 9, 50),
    number("slow", 9, 40),
    number("dropped", 9, 70),
    number("share", 7, 60),
];
const SLOW: &[Column] =
    &[text("reason", 15, 0), number("packets/s", 10, 0), number("packets", 12, 60), text("meaning", 0, 50)];
const CHANGES: &[Column] = &[
    number("ago", 10, 0),
    number("stale packets", 14, 60),
    number("lowest share", 13, 70),
    text("causes", 0, 0),
];

/// The columns of a pane, from left to right.
pub(super) const fn columns(pane: Pane) -> &'static [Column] {
    match pane {
        Pane::Connections => CONNECTIONS,
        Pane::Hosts => HOSTS,
        Pane::Ports => PORTS,
        Pane::Slow => SLOW,
        Pane::Changes => CHANGES,
    }
}
