//! Messages about qdiscs, classes and filters.

use crate::netlink_message::{Attrs, Message, u32_at};
use shunt_core::{Event, Qdisc, TcChange, TcObject, TcTurn};

pub(crate) const ROOT: u32 = 0xffff_ffff;
pub(crate) const INGRESS: u32 = 0xffff_fff2;
pub(crate) const EGRESS: u32 = 0xffff_fff3;
const INGRESS_QDISC: u32 = 0xffff_0000;

/// The tcm_ifindex of filters and chains of a shared block, which any number of devices may use.
const MAGIC_BLOCK: u32 = 0xffff_ffff;

/// A change that may affect every device: of a shared block, or of an action that filters share.
pub(super) const fn any_filter(change: Option<TcChange>) -> Event {
    Event::Filter { ifindex: 0, egress: true, kind: None, change }
}

/// The priority of the filters that Shunt attaches on kernels without TCX. Such filters are no obstacle to the fast
/// path.
pub const OWN_FILTER_PRIORITY: u32 = 0x5348;

const FIXED_BYTES: usize = 20;
const TCA_KIND: u16 = 1;

const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

pub(super) fn qdisc(payload: &[u8]) -> Option<Qdisc> {
    Some(Qdisc {
        ifindex: u32_at(payload, 4)?,
        handle: u32_at(payload, 8)?,
        parent: u32_at(payload, 12)?,
        kind: kind(payload)?,
    })
}

/// The kind of a qdisc or filter: `htb`, `flower`, ...
pub(crate) fn kind(payload: &[u8]) -> Option<String> {
    Attrs::after(payload, FIXED_BYTES).text(TCA_KIND)
}

/// A class belongs to a qdisc on egress. The message does not say whether it was there before.
pub(super) fn class(payload: &[u8], is_gone: bool) -> Option<Event> {
    let object = TcObject::Class { kind: kind(payload).unwrap_or_default(), handle: u32_at(payload, 8)? };
    let turn = if is_gone { TcTurn::Removed } else { TcTurn::AddedOrChanged };
    let change = Some(TcChange { object, turn });
    Some(Event::Filter { ifindex: u32_at(payload, 4)?, egress: true, kind: None, change })
}

/// An action that filters share.
pub(super) fn action(is_gone: bool) -> Event {
    let turn = if is_gone { TcTurn::Removed } else { TcTurn::AddedOrChanged };
    any_filter(Some(TcChange { object: TcObject::SharedAction, turn }))
}

/// Whether a message is about a filter of Shunt's own.
pub(crate) fn is_own_filter(payload: &[u8]) -> bool {
    // tcm_info: the priority above the EtherType.
    u32_at(payload, 16).is_some_and(|info| info >> 16 == OWN_FILTER_PRIORITY)
}

pub(super) fn filter(message: &Message, is_gone: bool) -> Option<Event> {
    let payload = message.payload;
    if is_own_filter(payload) {
        return None;
    }
    let ifindex = u32_at(payload, 4)?;
    let parent = u32_at(payload, 12)?;
    // The flags are those of the request.
    let turn = match (message.flags & NLM_F_CREATE != 0, message.flags & NLM_F_EXCL != 0) {
        _ if is_gone => TcTurn::Removed,
        (true, true) => TcTurn::Added,
        (true, false) => TcTurn::AddedOrChanged,
        (false, _) => TcTurn::Changed,
    };
    let kind = kind(payload);
    let object = TcObject::Filter(kind.clone().unwrap_or_default());
    let change = Some(TcChange { object, turn });
    if ifindex == MAGIC_BLOCK {
        return Some(any_filter(change));
    }
    let egress = !matches!(parent, INGRESS | INGRESS_QDISC);
    Some(Event::Filter { ifindex, egress, kind, change })
}

/// A chain message names only the qdisc, and clsact has both directions; reported as egress. A chain goes with its last
/// filter, or when a filter could not be added to it.
pub(super) fn chain(payload: &[u8]) -> Option<Event> {
    match u32_at(payload, 4)? {
        MAGIC_BLOCK => Some(any_filter(None)),
        ifindex => Some(Event::Filter { ifindex, egress: true, kind: None, change: None }),
    }
}
