//! The verifier's reason for refusing a program.

use libbpf_rs::{PrintLevel, set_print};
use std::cell::RefCell;

/// Markers around the verifier's log in libbpf's messages.
const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
const END: &str = "-- END PROG LOAD LOG --";
/// Prefixes of the statistics that end every log.
const SUMMARY: [&str; 3] = ["verification time ", "stack depth ", "processed "];

thread_local! {
    static REASON: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Suppresses libbpf's messages from now on, and keeps the verifier's reasons.
pub fn capture_log() {
    REASON.set(None);
    let _ = set_print(Some((PrintLevel::Warn, |_, text| {
        if let Some(reason) = reason(&text) {
            REASON.set(Some(reason));
        }
    })));
}

/// Takes the reason why the verifier refused a program of this thread since the last call. None if it refused none.
pub fn last_reason() -> Option<String> {
    REASON.take()
}

/// The name of the program, and the last line of the verifier's log before the statistics. None if the message has no
/// log.
fn reason(message: &str) -> Option<String> {
    let (head, log) = message.split_once(BEGIN)?;
    let log = log.split_once(END).map_or(log, |(log, _)| log);
    let mut lines = log.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.find(|line| !SUMMARY.iter().any(|start| line.starts_with(start)))?;
    let program = head.rsplit('\'').nth(1);
    Some(program.map_or(last.to_owned(), |program| format!("{program}: {last}")))
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn the_reason_is_the_program_and_the_last_line_before_the_statistics() {
        let message = "libbpf: prog 'shunt_gen': BPF program load failed: Permission denied\n\
                    libbpf: prog 'shunt_gen': -- BEGIN PROG LOAD LOG --\n\
                    567: (dc) r3 = be16 r3\n\
                    R9 offset is outside of the packet\n\
                    verification time 19948 usec\n\
                    stack depth 112\n\
                    processed 267 insns (limit 1000000) max_states_per_insn 0\n\
                    -- END PROG LOAD LOG --\n";
        assert_eq!(reason(message).as_deref(), Some("shunt_gen: R9 offset is outside of the packet"));
        assert_eq!(reason("libbpf: elf: section(7) tcx/ingress, size 0"), None);
    }
}
