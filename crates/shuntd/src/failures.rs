//! Failures of the daemon: each has a code, and one line that names the cause and what to type.

use shunt_api::{Failure, FailureCode};

pub(crate) fn failure(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure::new(code, message)
}

pub(crate) fn internal(error: impl std::fmt::Display) -> Failure {
    failure(FailureCode::Internal, error.to_string())
}

/// The failure to load the programs.
pub(crate) fn load_failure(error: &shunt_bpf::Error, max_flows: Option<u32>) -> Failure {
    let code = match error.os_error() {
        Some(nix::libc::EPERM) => FailureCode::NotRoot,
        Some(nix::libc::ENOMEM | nix::libc::EMFILE | nix::libc::ENFILE) => FailureCode::Internal,
        _ => FailureCode::KernelTooOld,
    };
    let size = max_flows.map_or_else(String::new, |size| format!(" for max_flows = {size}"));
    let memory = format!("there is not enough memory{size}; lower max_flows");
    let hint = match code {
        FailureCode::NotRoot => "CAP_BPF and CAP_NET_ADMIN are needed",
        FailureCode::Internal => match error.os_error() {
            Some(nix::libc::EMFILE) => "too few files may be open; raise the limit with: ulimit -n 4096",
            Some(nix::libc::ENFILE) => {
                "this machine has too many open files; raise the limit with: sysctl -w fs.file-max=1000000"
            }
            _ => &memory,
        },
        // With the JIT on, the kernel does not fall back to the interpreter for programs that the JIT cannot compile.
        _ if cfg!(target_arch = "arm") => {
            "Linux 6.1 or later with CONFIG_BPF_SYSCALL is needed, and net.core.bpf_jit_enable=0: \
             the JIT for 32-bit ARM does not know atomic operations"
        }
        _ => "Linux 6.1 or later with CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT is needed",
    };
    failure(code, format!("{error}; {hint}"))
}

/// The failure of a request that changes the flow table. A full table is the request's failure, not the daemon's.
pub(crate) fn table_failure(error: &shunt_bpf::Error) -> Failure {
    match error {
        shunt_bpf::Error::Full => {
            failure(FailureCode::TableFull, "the flow table is full; raise max_flows in the configuration")
        }
        _ => internal(error),
    }
}

/// The failure to attach to a port, for the operator.
pub(crate) fn attach_failure(name: &str, error: &shunt_bpf::Error) -> Failure {
    if let shunt_bpf::Error::NotLoaded(load_error) = error {
        let Failure { code, message } = load_failure(load_error, None);
        return failure(code, format!("port {name}: {message}; or use the engine tc"));
    }
    match error.os_error() {
        Some(nix::libc::EBUSY | nix::libc::EEXIST) => failure(
            FailureCode::PortBusy,
            format!("port {name}: another XDP program is already attached; detach it, or use the engine tc"),
        ),
        Some(nix::libc::EOPNOTSUPP | nix::libc::ERANGE) => failure(
            FailureCode::NoNativeXdp,
            format!("port {name}: the driver refuses native XDP ({error}); use the engine tc"),
        ),
        None if matches!(error, shunt_bpf::Error::NoEgress) => failure(
            FailureCode::KernelTooOld,
            format!(
                "port {name}: an `ingress` qdisc has no egress hook, and this kernel has no TCX (Linux 6.6); replace the \
                 qdisc: tc qdisc del dev {name} ingress && tc qdisc add dev {name} clsact"
            ),
        ),
        Some(nix::libc::ENODEV) => {
            failure(FailureCode::PortMissing, format!("port {name}: the device no longer exists"))
        }
        _ => internal(format!("port {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_limit_of_open_files_is_not_an_old_kernel() {
        for (errno, hint) in [(nix::libc::EMFILE, "ulimit -n"), (nix::libc::ENFILE, "fs.file-max")] {
            let failure =
                load_failure(&shunt_bpf::Error::Memory(std::io::Error::from_raw_os_error(errno)), None);
            assert_eq!(failure.code, FailureCode::Internal);
            assert!(failure.message.contains(hint), "{failure:?}");
        }
    }

    #[test]
    fn a_port_reports_why_its_program_was_not_loaded() {
        let refused = shunt_bpf::Error::Refused { object: "xdp_forward", reason: "R3 invalid".to_owned() };
        let failure = attach_failure("eth0", &shunt_bpf::Error::NotLoaded(Arc::new(refused)));
        assert_eq!(failure.code, FailureCode::KernelTooOld);
        assert_eq!(
            failure.message,
            "port eth0: the kernel's verifier refused the xdp_forward programs: R3 invalid; Linux 6.1 or later with \
             CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT is needed; or use the engine tc"
        );
    }
}
