//! Changes of qdiscs, classes, filters and programs, in words of `tc monitor`. People read them; the policy does not.

use crate::{Program, Qdisc, TcChange, TcObject, TcTurn};

/// TC_H_ROOT.
const ROOT: u32 = 0xffff_ffff;
/// The parents of `ingress` and `clsact` begin with this major number.
const INGRESS_MAJOR: u32 = 0xffff;

impl TcTurn {
    const fn words(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::AddedOrChanged => "added or changed",
            Self::Removed => "removed",
        }
    }
}

impl TcChange {
    /// `filter u32 added on ingress of wan0`. Without a device, the filter belongs to a block that devices share.
    pub(crate) fn words(&self, device: Option<&str>, egress: bool) -> String {
        let turn = self.turn.words();
        let place = |hook: &str| {
            device.map_or_else(|| " in a shared block".to_owned(), |device| format!(" on {hook}{device}"))
        };
        match &self.object {
            TcObject::Filter(kind) => {
                let hook = if egress { "egress of " } else { "ingress of " };
                format!("filter {kind} {turn}{}", place(hook))
            }
            TcObject::Class { kind, handle } => {
                format!("class {kind} {} {turn}{}", number(*handle), place(""))
            }
            TcObject::SharedAction => format!("shared action {turn}"),
        }
    }
}

impl Qdisc {
    /// Whether the kernel made it by itself, for a device or a class without another one.
    pub(crate) const fn is_default(&self) -> bool {
        self.handle == 0
    }

    /// `qdisc tbf 8001: added on wan0`.
    pub(crate) fn words(&self, turn: TcTurn, device: &str) -> String {
        let below = match self.parent {
            ROOT => String::new(),
            parent if parent >> 16 == INGRESS_MAJOR => String::new(),
            parent => format!(", parent {}", number(parent)),
        };
        format!("qdisc {} {} {} on {device}{below}", self.kind, number(self.handle), turn.words())
    }
}

impl Program {
    /// `TCX program drop_all added on ingress of wan0`.
    pub(crate) fn words(&self, turn: TcTurn, device: &str) -> String {
        let hook = if self.egress { "egress" } else { "ingress" };
        format!("TCX program {} {} on {hook} of {device}", self.name, turn.words())
    }
}

/// A number of tc, as `tc` has it: `1:` or `1:10`, in hexadecimal digits.
fn number(handle: u32) -> String {
    match (handle >> 16, handle & 0xffff) {
        (major, 0) => format!("{major:x}:"),
        (major, minor) => format!("{major:x}:{minor:x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_the_words_and_numbers_of_tc() {
        let qdisc = |kind: &str, handle, parent| Qdisc { ifindex: 2, kind: kind.to_owned(), handle, parent };
        let tbf = qdisc("tbf", 0x8001_0000, ROOT);
        assert_eq!(tbf.words(TcTurn::Added, "wan0"), "qdisc tbf 8001: added on wan0");
        let child = qdisc("pfifo", 0x10_0000, 0x1_0010);
        assert_eq!(child.words(TcTurn::Changed, "wan0"), "qdisc pfifo 10: changed on wan0, parent 1:10");
        let clsact = qdisc("clsact", 0xffff_0000, 0xffff_fff1);
        assert_eq!(clsact.words(TcTurn::Removed, "wan0"), "qdisc clsact ffff: removed on wan0");
        let change = |object, turn| TcChange { object, turn };
        let filter = change(TcObject::Filter("u32".to_owned()), TcTurn::Added);
        assert_eq!(filter.words(Some("wan0"), false), "filter u32 added on ingress of wan0");
        assert_eq!(filter.words(None, true), "filter u32 added in a shared block");
        let class = TcObject::Class { kind: "htb".to_owned(), handle: 0x1_0010 };
        let class = change(class, TcTurn::AddedOrChanged);
        assert_eq!(class.words(Some("wan0"), true), "class htb 1:10 added or changed on wan0");
        let action = change(TcObject::SharedAction, TcTurn::Removed);
        assert_eq!(action.words(None, true), "shared action removed");
        let program = Program { ifindex: 2, egress: true, name: "mark".to_owned() };
        assert_eq!(program.words(TcTurn::Removed, "wan0"), "TCX program mark removed on egress of wan0");
    }
}
