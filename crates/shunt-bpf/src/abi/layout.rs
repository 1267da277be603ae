//! Comparing the layout of Rust types with that of the C structs, for unit tests.
//!
//! The C side is a table that `shunt_bpf_build::compile_layout` makes of a header.

use super::Plain;
use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_ulong},
};

/// Sizes of structs (`shunt_flow`), offsets of fields (`shunt_flow.epoch`) and values of constants, by their C names.
pub type Values = BTreeMap<String, u64>;

/// An entry of the C table.
#[repr(C)]
#[derive(Debug)]
pub struct CValue {
    name: *const c_char,
    value: c_ulong,
}

/// Reads a C table.
///
/// # Safety
/// `table` points to entries with names that are C strings, up to one whose name is null.
pub unsafe fn c_values(mut table: *const CValue) -> Values {
    let mut values = Values::new();
    loop {
        // SAFETY: the caller vouches for every entry up to the one without a name, where the loop ends.
        let CValue { name, value } = unsafe { table.read() };
        if name.is_null() {
            return values;
        }
        // SAFETY: the caller vouches for the name.
        let name = unsafe { CStr::from_ptr(name) };
        #[allow(clippy::useless_conversion, reason = "c_ulong has 32 bits on some targets")]
        values.insert(name.to_string_lossy().into_owned(), value.into());
        // SAFETY: this entry has a name, so another one follows.
        table = unsafe { table.add(1) };
    }
}

/// Adds the size of a type and the offsets of its fields.
pub fn add<T: Plain>(values: &mut Values) {
    values.insert(T::C_NAME.to_owned(), size_of::<T>() as u64);
    values.extend(T::FIELDS.iter().map(|(name, at)| (format!("{}.{name}", T::C_NAME), *at as u64)));
}

/// Asserts that the values are those of the C table, and that none is missing but those that only C uses: an entry
/// covers the name itself, and the fields if it is a struct.
///
/// # Panics
/// If a value differs or is missing.
pub fn assert_equal(rust: &Values, c: &Values, only_in_c: &[&str]) {
    let is_only_in_c = |name: &str| {
        only_in_c.contains(&name) || name.split_once('.').is_some_and(|(tag, _)| only_in_c.contains(&tag))
    };
    let (skipped, mirrored): (Values, Values) =
        c.clone().into_iter().partition(|(name, _)| is_only_in_c(name));
    assert_eq!(*rust, mirrored, "Rust differs from the C header");
    for name in only_in_c {
        assert!(skipped.contains_key(*name), "the C header has no {name}");
    }
}

#[cfg(test)]
mod tests {
    use super::{CValue, Values, add, assert_equal, c_values};
    use crate::{abi::*, core};

    // SAFETY: build.rs makes the table.
    unsafe extern "C" {
        static shunt_abi_values: CValue;
    }

    macro_rules! constants {
        ($values:ident: $($name:ident)*) => {
            $($values.insert(concat!("SHUNT_", stringify!($name)).to_owned(), u64::from($name));)*
        };
    }

    #[test]
    fn sizes_offsets_and_constants_are_those_of_the_c_header() {
        let mut rust = Values::new();
        add::<Key4>(&mut rust);
        add::<Key6>(&mut rust);
        add::<Flow>(&mut rust);
        add::<Cold>(&mut rust);
        add::<Usage>(&mut rust);
        add::<Tuple>(&mut rust);
        add::<Expired>(&mut rust);
        add::<Port>(&mut rust);
        add::<PortCache>(&mut rust);
        add::<Counters>(&mut rust);
        add::<Control>(&mut rust);
        add::<Sighting>(&mut rust);
        add::<Event>(&mut rust);
        add::<Trace>(&mut rust);
        add::<Sweep>(&mut rust);
        add::<Edit>(&mut rust);
        add::<PaddedMac>(&mut rust);
        add::<Unstable>(&mut rust);
        add::<Change>(&mut rust);
        add::<SetName>(&mut rust);
        add::<Set>(&mut rust);
        constants!(rust: SETS_MAX SET_INTERVALS);
        add::<ExternalPort>(&mut rust);
        add::<External>(&mut rust);
        add::<Injected>(&mut rust);
        constants!(rust: QUEUES_MAX INJECTED_MAX FRAME_MAX ENGINE_CPU PORT_EXTERNAL);
        constants!(rust: ABI_VERSION PORTS_MAX EPOCH_RETIRED);
        constants!(rust: FLOW_PENDING FLOW_ACTIVE FLOW_INSERTED NO_CPU);
        constants!(rust: FLOW_XDP FLOW_STATIC FLOW_NAT FLOW_PARTIAL FLOW_REPLY FLOW_UNREPLIED FLOW_BRIDGED);
        constants!(rust: FLOW_UNTRACKED TAG_VID TAG_8021AD TAG_PRESENT);
        constants!(rust: PORT_XDP_OUT PORT_PARTIAL PORT_CAPTURED PORT_FILTERED PORT_FILTERED_OUT PORT_BRIDGED);
        constants!(rust: PORT_UNTRACKED4 PORT_UNTRACKED6 PORT_XDP_IN PORT_XDP_FRAGS PORT_FLOODS_UNSEEN PORT_PACED);
        constants!(rust: CONTROL_LEARN CONTROL_UDP_UNREPLIED CONTROL_HOLD_TCP4 CONTROL_HOLD_TCP6);
        constants!(rust: CONTROL_HOLD_UDP4 CONTROL_HOLD_UDP6 CONTROL_HOLD_NEW4 CONTROL_HOLD_NEW6 CONTROL_TRACE);
        constants!(rust: CONTROL_STATICS CONTROL_VERIFY_TC CONTROL_VERIFY_XDP CONTROL_VERIFY_LONG);
        constants!(rust: CONTROL_SURVEY);
        constants!(rust: EVENT_SET_LIBERAL EVENT_SILENT EVENT_LAGS EVENT_ENDED EVENT_IN_WINDOW EVENT_BLIND);
        constants!(rust: EVENT_TX_ERROR);
        constants!(rust: TRACE_LEARN TRACE_ACTIVATE TRACE_PUNT TRACE_REFUSE TRACE_RETIRE);
        constants!(rust: EDIT_PUT EDIT_REMOVE EDIT_GET EDIT_SIGHTING SIGHTING_TICKS);
        rust.insert("SHUNT_L2_MAX".to_owned(), L2_MAX as u64);
        rust.insert("SHUNT_GROUPS".to_owned(), GROUPS as u64);
        rust.insert("SHUNT_WAYS".to_owned(), WAYS as u64);
        rust.insert("SHUNT_REASONS_MAX".to_owned(), Counters::default().reasons.len() as u64);
        let only_in_c = [
            // Sizes and structures of the programs alone.
            "SHUNT_TAGS_MAX",
            "SHUNT_L3_MAX",
            "SHUNT_L4_MAX",
            "SHUNT_CANDIDATES",
            "SHUNT_SIGHTINGS",
            "SHUNT_UPPERS_MAX",
            "SHUNT_UNSTABLE_MAX",
            "SHUNT_SOURCES",
            "SHUNT_CANDIDATE_COOKIE",
            "SHUNT_CANDIDATE_BUSY",
            "SHUNT_CANDIDATE_LEFT",
            "SHUNT_CANDIDATE_EMPTY",
            "SHUNT_CANDIDATE_WRITES",
            "shunt_headers",
            "shunt_candidate",
            "shunt_bucket",
            "shunt_flow_id",
            // Read as a key and a flow.
            "shunt_entry4",
            "shunt_entry6",
            // Second names in unions.
            "shunt_flow.retired_ticks",
            "shunt_flow.retired_why",
            "shunt_cold.blind_ticks",
            "SHUNT_OK",
        ];
        // SAFETY: the build script ends the table with an entry without a name.
        let c = unsafe { c_values(&raw const shunt_abi_values) };
        assert_equal(&rust, &c, &only_in_c);
        assert_eq!(size_of::<core::Packet>(), 32);
    }
}
