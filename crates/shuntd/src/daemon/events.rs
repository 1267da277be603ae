//! What the data plane tells, as the policy knows it.

use shunt_bpf::abi;
use shunt_core::{Connection, Event, Proto, Silent};
use std::net::{IpAddr, SocketAddr};

/// None for a kind of event that this version does not know.
pub(super) fn told(event: &abi::Event) -> Option<Event> {
    let direction = connection_of(event);
    match event.kind {
        abi::EVENT_WANT_LIBERAL => Some(Event::WantLiberal(direction)),
        abi::EVENT_SILENT => Some(Event::Silent(Silent { direction, reply: event.reply != 0 })),
        _ => None,
    }
}

fn connection_of(event: &abi::Event) -> Connection {
    let addr = |bytes: [u8; 16]| -> IpAddr {
        if event.family == 4 {
            <[u8; 4]>::try_from(&bytes[..4]).map(IpAddr::from).unwrap_or(IpAddr::from(bytes))
        } else {
            IpAddr::from(bytes)
        }
    };
    Connection {
        proto: Proto::Tcp,
        src: SocketAddr::new(addr(event.src_be), u16::from_be_bytes(event.sport_be)),
        dst: SocketAddr::new(addr(event.dst_be), u16::from_be_bytes(event.dport_be)),
    }
}
