//! What the verifier says of a program that it refuses.

use libbpf_rs::{PrintLevel, set_print};
use std::cell::RefCell;

/// Around what libbpf passes on of the verifier's log.
const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
const END: &str = "-- END PROG LOAD LOG --";
/// What the verifier ends its log with, whatever it found.
const SUMMARY: [&str; 3] = ["verification time ", "stack depth ", "processed "];

thread_local! {
    static REASON: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on what libbpf would print is not printed, and the verifier's reasons are kept.
pub(crate) fn listen() {
    REASON.set(None);
    let _ = set_print(Some((PrintLevel::Warn, |_, text| {
        if let Some(reason) = reason(&text) {
            REASON.set(Some(reason.to_owned()));
        }
    })));
}

/// Why the verifier refused the last program that this thread loaded, if it did.
pub(crate) fn last_reason() -> Option<String> {
    REASON.take()
}

/// The last line of the verifier's log that is about the program.
fn reason(said: &str) -> Option<&str> {
    let log = said.split_once(BEGIN)?.1;
    let log = log.split_once(END).map_or(log, |(log, _)| log);
    let mut lines = log.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    lines.find(|line| !SUMMARY.iter().any(|start| line.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn the_reason_is_the_last_line_about_the_program() {
        let said = "libbpf: prog 'shunt_gen': BPF program load failed: Permission denied\n\
                    libbpf: prog 'shunt_gen': -- BEGIN PROG LOAD LOG --\n\
                    567: (dc) r3 = be16 r3\n\
                    R9 offset is outside of the packet\n\
                    verification time 19948 usec\n\
                    stack depth 112\n\
                    processed 267 insns (limit 1000000) max_states_per_insn 0\n\
                    -- END PROG LOAD LOG --\n";
        assert_eq!(reason(said), Some("R9 offset is outside of the packet"));
        assert_eq!(reason("libbpf: elf: section(7) tcx/ingress, size 0"), None);
    }
}
