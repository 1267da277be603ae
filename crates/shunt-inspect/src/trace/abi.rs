//! The Rust side of `bpf/inspect/trace_abi.h`.

use shunt_bpf::plain;

/// Events that a record has room for.
pub(super) const EVENTS_MAX: usize = 64;
/// Bits of an attach cookie with the number of a function; the index of its argument is above them.
pub(super) const COOKIE_NUMBER_BITS: u32 = 16;

/// Values of `enum trace_stage`: what happened to a packet.
pub(super) mod stage {
    pub(crate) const DRIVER: u32 = 2;
    pub(crate) const RECEIVE: u32 = 3;
    pub(crate) const QUEUE: u32 = 4;
    pub(crate) const START: u32 = 5;
    pub(crate) const XMIT: u32 = 6;
    pub(crate) const FREED: u32 = 7;
    pub(crate) const TCP: u32 = 8;
    pub(crate) const READY: u32 = 9;
    pub(crate) const READ: u32 = 10;
    /// Twice the number of the hook is added, and one behind all its functions.
    pub(crate) const HOOK: u32 = 16;
    pub(crate) const XDP_PREVIOUS: u32 = 32;
    pub(crate) const XDP_ENTRY: u32 = 33;
    pub(crate) const XDP_DECIDED: u32 = 34;
    pub(crate) const XDP_REDIRECT: u32 = 35;
    pub(crate) const XDP_XMIT: u32 = 36;
    pub(crate) const PROBE: u32 = 40;
}

/// Values of `enum trace_end`: why a record ended.
pub(super) mod end {
    pub(crate) const DROPPED: u32 = 2;
    pub(crate) const CONSUMED: u32 = 3;
    pub(crate) const VANISHED: u32 = 4;
    pub(crate) const PASSED: u32 = 5;
}

/// Bits of `enum trace_flags`.
pub(super) mod flag {
    pub(crate) const LEFT: u32 = 1 << 0;
    pub(crate) const LOCAL_OUT: u32 = 1 << 1;
    pub(crate) const ANSWER: u32 = 1 << 2;
}

plain! {
    /// `struct trace_tuple`. Addresses and ports are in network byte order.
    pub(super) struct Tuple = "trace_tuple", 40; {
        pub(super) src_be: [u8; 16],
        pub(super) dst_be: [u8; 16],
        pub(super) sport_be: [u8; 2],
        pub(super) dport_be: [u8; 2],
        pub(super) family: u8,
        pub(super) l4_proto: u8,
        pub(super) _pad: [u8; 2],
    }
}

plain! {
    /// `struct trace_plan`: which packets to trace.
    pub(super) struct Plan = "trace_plan", 96; {
        pub(super) netns: u32,
        pub(super) ifindex: u32,
        pub(super) sample: u32,
        pub(super) filter: u32,
        pub(super) tuple: Tuple,
        pub(super) src_mask_be: [u8; 16],
        pub(super) dst_mask_be: [u8; 16],
        pub(super) xdp_entry: u32,
        pub(super) _pad: u32,
    }
}

plain! {
    /// `struct trace_probes`: the functions at which packets are seen.
    pub(super) struct Probes = "trace_probes", 16; {
        pub(super) register_at: [u16; 6],
        pub(super) window: u32,
    }
}

plain! {
    /// `struct trace_event`.
    pub(super) struct Event = "trace_event", 28; {
        pub(super) after_ns: u32,
        pub(super) cpu: u16,
        pub(super) probe: u16,
        pub(super) stage: u32,
        pub(super) comm: [u8; 16],
    }
}

plain! {
    /// `struct trace_record`. A record in the ring ends behind its last event.
    pub(super) struct Record = "trace_record", 128 + 28 * EVENTS_MAX; {
        pub(super) began_ns: u64,
        pub(super) r#in: Tuple,
        pub(super) out: Tuple,
        pub(super) in_ifindex: u32,
        pub(super) out_ifindex: u32,
        pub(super) bytes: u32,
        pub(super) flags: u32,
        pub(super) position: u32,
        pub(super) end: u32,
        pub(super) reason: u32,
        pub(super) events: u32,
        pub(super) lost: u32,
        pub(super) slot: u32,
        pub(super) event: [Event; EVENTS_MAX],
    }
}

plain! {
    /// `struct trace_losses`.
    pub(super) struct Losses = "trace_losses", 16; {
        pub(super) busy: u64,
        pub(super) ring_full: u64,
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "reads a table that C defines")]
mod tests {
    use super::*;
    use shunt_bpf::abi::layout::{CValue, Values, add, assert_equal, c_values};

    // SAFETY: build.rs makes the table.
    unsafe extern "C" {
        static trace_abi_values: CValue;
    }

    #[test]
    fn sizes_offsets_and_constants_are_those_of_the_c_header() {
        let mut rust = Values::new();
        add::<Tuple>(&mut rust);
        add::<Plan>(&mut rust);
        add::<Probes>(&mut rust);
        add::<Event>(&mut rust);
        add::<Record>(&mut rust);
        add::<Losses>(&mut rust);
        // `in` is a word of the language.
        if let Some(at) = rust.remove("trace_record.r#in") {
            rust.insert("trace_record.in".to_owned(), at);
        }
        for (name, value) in [
            ("EVENTS_MAX", EVENTS_MAX as u32),
            ("COOKIE_NUMBER_BITS", COOKIE_NUMBER_BITS),
            ("DRIVER", stage::DRIVER),
            ("RECEIVE", stage::RECEIVE),
            ("QUEUE", stage::QUEUE),
            ("START", stage::START),
            ("XMIT", stage::XMIT),
            ("FREED", stage::FREED),
            ("TCP", stage::TCP),
            ("READY", stage::READY),
            ("READ", stage::READ),
            ("HOOK", stage::HOOK),
            ("XDP_PREVIOUS", stage::XDP_PREVIOUS),
            ("XDP_ENTRY", stage::XDP_ENTRY),
            ("XDP_DECIDED", stage::XDP_DECIDED),
            ("XDP_REDIRECT", stage::XDP_REDIRECT),
            ("XDP_XMIT", stage::XDP_XMIT),
            ("PROBE", stage::PROBE),
            ("DROPPED", end::DROPPED),
            ("CONSUMED", end::CONSUMED),
            ("VANISHED", end::VANISHED),
            ("PASSED", end::PASSED),
            ("LEFT", flag::LEFT),
            ("LOCAL_OUT", flag::LOCAL_OUT),
            ("ANSWER", flag::ANSWER),
        ] {
            rust.insert(format!("TRACE_{name}"), value.into());
        }
        // SAFETY: the build script ends the table with an entry without a name.
        let c = unsafe { c_values(&raw const trace_abi_values) };
        assert_equal(
            &rust,
            &c,
            &["TRACE_SLOTS", "TRACE_SOCKETS", "TRACE_COMM_BYTES", "TRACE_SEND", "TRACE_DONE"],
        );
    }
}
