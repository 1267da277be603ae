//! What a message of the kernel says of a filter, class or action of tc.

/// What a message says of a tc filter, class or action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcChange {
    /// What has changed.
    pub object: TcObject,
    /// What became of it.
    pub turn: TcTurn,
}

/// An object of tc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TcObject {
    /// A filter of this kind, such as `u32` or `flower`.
    Filter(String),
    /// A class.
    Class {
        /// The kind of its qdisc.
        kind: String,
        /// Its number: that of the qdisc, and its own.
        handle: u32,
    },
    /// An action that filters share.
    SharedAction,
}

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcTurn {
    /// It is new.
    Added,
    /// It was there before, and has other settings.
    Changed,
    /// It is new, or took the place of another one: the message does not say which.
    AddedOrChanged,
    /// It is gone.
    Removed,
}
