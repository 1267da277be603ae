//! What changes were about, in words: for people, not for the policy.

use crate::{Cause, Scope};
use shunt_wire::Mac;
use std::{collections::BTreeMap, mem::take, net::IpAddr};

/// What a change is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeDetails {
    /// The name of the device; `None` if the change concerns no single device.
    pub device: Option<String>,
    /// The route, address or setting, and what became of it, in words.
    pub object: Option<String>,
}

/// A change that is told on its own, whether or not the epoch moves for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A port went up or down.
    Link {
        /// The port.
        port: String,
        /// Whether it is up and has a carrier now.
        up: bool,
    },
    /// A default route was added, changed or removed.
    DefaultRoute(ChangeDetails),
    /// The last packet socket that captured on these ports was closed.
    CaptureEnded {
        /// The ports.
        ports: Vec<String>,
    },
    /// A qdisc, or a TCX program of another, was added, changed or removed.
    Tc(TcNews),
    /// A neighbour has another MAC.
    Neighbour {
        /// The name of the device.
        device: String,
        /// Its address.
        addr: IpAddr,
        /// Its MAC from now on.
        mac: Mac,
        /// The MAC that it had.
        was: Mac,
    },
}

/// A change of a qdisc or program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcNews {
    /// The name of the device.
    pub device: String,
    /// The kind of a qdisc, such as `clsact`; `tcx` for a program.
    pub kind: String,
    /// The object and what became of it, in words.
    pub words: String,
}

/// What moves the epoch.
type Move = (Cause, Scope);

/// Changes of one move that are told; further ones are counted.
const TOLD_MAX: usize = 8;
/// Neighbours with another MAC that are told of one batch of changes.
const NEIGHBOURS_MAX: usize = 16;
/// Moves that are not told yet, and that the kernel has not finished.
const UNFINISHED_MAX: usize = 64;

/// What the last changes were about.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Those that move the epoch, until they are taken.
    moved: BTreeMap<Move, Moved>,
    /// How often the epoch moves for something that is told elsewhere.
    following: BTreeMap<Move, usize>,
    /// Those for which the epoch had not to move so far: the kernel has not finished them.
    unfinished: BTreeMap<Move, Vec<ChangeDetails>>,
    /// Those that are told on their own, oldest first, until they are taken. A change of a default route that happened
    /// twice is there once, at its last time.
    told: Vec<Told>,
}

/// The changes for which the epoch moves; none if they follow from another one that is told.
#[derive(Debug, Default)]
struct Moved {
    changes: Vec<ChangeDetails>,
    /// How many more there are.
    more: usize,
    /// The epoch will move again when the kernel has finished.
    is_early: bool,
}

impl Changes {
    /// Notes a change that moves the epoch; `None` if it follows from another one that is told.
    pub(crate) fn note(&mut self, moves: Move, change: Option<ChangeDetails>, is_early: bool) {
        let moved = self.moved.entry(moves).or_default();
        moved.is_early |= is_early;
        let Some(change) = change.filter(|change| !moved.changes.contains(change)) else { return };
        if moved.changes.len() < TOLD_MAX {
            moved.changes.push(change);
        } else {
            moved.more += 1;
        }
    }

    /// Notes a sysctl, in words that differ by the device only. The kernel reports one of all devices, and that of
    /// each.
    pub(crate) fn note_sysctl(&mut self, moves: Move, change: ChangeDetails, words: impl Fn(&str) -> String) {
        let of_all = words("all");
        let moved = self.moved.entry(moves).or_default();
        let is = |noted: &ChangeDetails, words: &str| noted.object.as_deref() == Some(words);
        if is(&change, &of_all) {
            let is_one = |noted: &ChangeDetails| match &noted.device {
                Some(device) => is(noted, &words(device)),
                None => is(noted, &words("default")),
            };
            moved.changes.retain(|noted| !is_one(noted));
        }
        let is_covered = moved.changes.iter().any(|noted| is(noted, &of_all));
        self.note(moves, Some(change).filter(|_| !is_covered), false);
    }

    /// Notes that the epoch moves for something that is told elsewhere.
    pub(crate) fn follow(&mut self, moves: Move) {
        *self.following.entry(moves).or_default() += 1;
    }

    /// Notes that the epoch moves once more, since the kernel has finished. What was told at first is not told again.
    pub(crate) fn finish(&mut self, (cause, scope): Move) {
        let is_meant = |(of, about): &Move| *of == cause && (*about == scope || scope == Scope::Everything);
        let (finished, others): (BTreeMap<Move, Vec<ChangeDetails>>, _) =
            take(&mut self.unfinished).into_iter().partition(|(moves, _)| is_meant(moves));
        self.unfinished = others;
        for change in finished.into_values().flatten() {
            self.note((cause, scope), Some(change), false);
        }
        self.moved.entry((cause, scope)).or_default();
    }

    /// Notes a change of a default route, whether or not it moves the epoch.
    pub(crate) fn note_default_route(&mut self, change: ChangeDetails) {
        let told = Told::DefaultRoute(change);
        self.told.retain(|other| *other != told);
        self.told.push(told);
    }

    /// Notes a neighbour with another MAC. Hosts of the network can cause many of these at once.
    pub(crate) fn note_neighbour(&mut self, told: Told) {
        let neighbours = self.told.iter().filter(|told| matches!(told, Told::Neighbour { .. }));
        if neighbours.count() < NEIGHBOURS_MAX {
            self.told.push(told);
        }
    }

    /// Notes a change that is told on its own.
    pub(crate) fn note_told(&mut self, told: Told) {
        self.told.push(told);
    }

    /// What the epoch has moved for. A move that nothing was noted for has a cause and no more.
    pub(crate) fn take(&mut self, moves: Move) -> Vec<ChangeDetails> {
        let Some(Moved { mut changes, more, .. }) = self.moved.remove(&moves) else {
            let following = self.following.get_mut(&moves).filter(|times| **times > 0);
            return match following {
                Some(times) => {
                    *times -= 1;
                    Vec::new()
                }
                None => vec![ChangeDetails::default()],
            };
        };
        for change in &changes {
            // A later one of the same route stays: it tells what holds now.
            let is_route = |told: &Told| matches!(told, Told::DefaultRoute(_));
            let first = self.told.iter().position(is_route);
            if let Some(first) = first.filter(|at| self.told[*at] == Told::DefaultRoute(change.clone())) {
                self.told.remove(first);
            }
        }
        if more > 0 {
            let object = Some(format!("{more} more of this kind at the same time"));
            changes.push(ChangeDetails { device: None, object });
        }
        changes
    }

    /// Notes that the epoch had not to move: no flow depends on what has changed. It may have to when the kernel has
    /// finished.
    pub(crate) fn pass(&mut self, moves: Move) {
        let Some(Moved { changes, is_early, .. }) = self.moved.remove(&moves) else { return };
        if is_early && self.unfinished.len() < UNFINISHED_MAX {
            self.unfinished.insert(moves, changes);
        }
    }

    /// The links that have gone up or down.
    pub(crate) fn take_links(&mut self) -> Vec<Told> {
        self.told.extract_if(.., |told| matches!(told, Told::Link { .. })).collect()
    }

    /// The changes that are told on their own, and that [`Changes::take`] has not told.
    pub(crate) fn take_told(&mut self) -> Vec<Told> {
        take(&mut self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: Move = (Cause::Route, Scope::Everything);

    fn about(object: &str) -> ChangeDetails {
        ChangeDetails { device: None, object: Some(object.to_owned()) }
    }

    #[test]
    fn a_move_tells_each_change_once_and_counts_those_beyond_a_few() {
        let mut changes = Changes::default();
        assert_eq!(changes.take(ROUTE), [ChangeDetails::default()], "nothing was noted");
        changes.note(ROUTE, None, false);
        assert_eq!(changes.take(ROUTE), [], "it follows from another change");
        changes.note(ROUTE, Some(about("a")), false);
        changes.follow(ROUTE);
        let taken = [changes.take(ROUTE), changes.take(ROUTE), changes.take(ROUTE)];
        assert_eq!(taken, [vec![about("a")], vec![], vec![ChangeDetails::default()]]);
        for object in ["a", "b", "a", "c", "d", "e", "f", "g", "h", "i", "b", "j"] {
            changes.note(ROUTE, Some(about(object)), false);
        }
        changes.note(ROUTE, None, false);
        let more = "2 more of this kind at the same time";
        assert_eq!(changes.take(ROUTE), ["a", "b", "c", "d", "e", "f", "g", "h", more].map(about));
    }

    #[test]
    fn a_sysctl_of_all_devices_stands_for_those_of_each() {
        let moves = (Cause::Netconf, Scope::Everything);
        let said = |order: &[&str]| -> Vec<String> {
            let mut changes = Changes::default();
            for name in ["forwarding", "rp_filter"] {
                let words = |of: &str| format!("conf.{of}.{name} = 1");
                for of in order.iter().filter(|of| name == "forwarding" || **of == "r0") {
                    let device = Some((*of).to_owned()).filter(|of| of != "all" && of != "default");
                    changes.note_sysctl(moves, ChangeDetails { device, object: Some(words(of)) }, words);
                }
            }
            changes.take(moves).into_iter().filter_map(|change| change.object).collect()
        };
        let wanted = ["conf.all.forwarding = 1", "conf.r0.rp_filter = 1"];
        assert_eq!(said(&["all", "default", "r0", "r1"]), wanted, "IPv4");
        assert_eq!(said(&["default", "r0", "r1", "r2", "r3", "all"]), wanted, "IPv6");
        assert_eq!(said(&["r0"]), ["conf.r0.forwarding = 1", "conf.r0.rp_filter = 1"]);
    }

    #[test]
    fn what_the_kernel_finishes_is_told_then_unless_it_was_told_before() {
        let mut changes = Changes::default();
        changes.note(ROUTE, Some(about("a")), true);
        assert_eq!(changes.take(ROUTE), [about("a")]);
        changes.finish(ROUTE);
        assert_eq!(changes.take(ROUTE), []);
        let prefix = |n: u8| (Cause::Route, Scope::Prefix { addr: [198, 51, n, 0].into(), len: 24 });
        for n in 1..=3 {
            changes.note(prefix(n), Some(about("a")), n < 3);
            changes.pass(prefix(n));
        }
        changes.finish(prefix(1));
        assert_eq!(changes.take(prefix(1)), [about("a")]);
        // Many that are finished at once are finished as one.
        changes.finish(ROUTE);
        assert_eq!(changes.take(ROUTE), [about("a")]);
        assert!(changes.unfinished.is_empty(), "the third was finished when it was noted");
    }
}
