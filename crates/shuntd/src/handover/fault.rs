//! Faults at the steps of a hand-over, for tests: SHUNT_HANDOVER_FAULT=STEP kills the process at that step, and
//! SHUNT_HANDOVER_FAULT=stop:STEP stops it. Release builds have none.

/// Has the process killed or stopped here, if a test asks for it.
pub(crate) fn fault_point(step: &str) {
    #[cfg(debug_assertions)]
    {
        use nix::sys::signal::{Signal, raise};
        let wanted = std::env::var("SHUNT_HANDOVER_FAULT").unwrap_or_default();
        let signal = match wanted.strip_prefix("stop:") {
            Some(at) if at == step => Signal::SIGSTOP,
            None if wanted == step => Signal::SIGKILL,
            _ => return,
        };
        // Fails for no signal that there is.
        let _ = raise(signal);
    }
    #[cfg(not(debug_assertions))]
    let _ = step;
}
