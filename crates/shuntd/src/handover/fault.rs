//! Faults at the steps of a hand-over, for tests: SHUNT_HANDOVER_FAULT=STEP kills the process at that step, stop:STEP
//! stops it, and slow:STEP has it wait there for as long as a kernel may that is slow to exchange programs. Release
//! builds have none.

/// Has the process killed, stopped or held up here, if a test asks for it.
pub(crate) fn fault_point(step: &str) {
    #[cfg(debug_assertions)]
    {
        use nix::sys::signal::{Signal, raise};
        const SLOW: std::time::Duration = std::time::Duration::from_secs(4);
        let wanted = std::env::var("SHUNT_HANDOVER_FAULT").unwrap_or_default();
        let signal = match wanted.split_once(':').unwrap_or(("kill", &wanted)) {
            ("kill", at) if at == step => Signal::SIGKILL,
            ("stop", at) if at == step => Signal::SIGSTOP,
            ("slow", at) if at == step => return std::thread::sleep(SLOW),
            _ => return,
        };
        // Fails for no signal that there is.
        let _ = raise(signal);
    }
    #[cfg(not(debug_assertions))]
    let _ = step;
}
