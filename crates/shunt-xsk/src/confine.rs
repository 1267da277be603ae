//! What the engine's process may do once its sockets are open. It reads packets of strangers.

use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
};
use std::io;

/// Drops all capabilities of this thread, and has the kernel kill the process at a system call that the engine's loop
/// does not make. On architectures without a filter, only the capabilities go.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn confine() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    // The kernel takes a filter of a process without capabilities only if the process can never get any.
    set_no_new_privs(true)?;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    filter::apply()?;
    Ok(())
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod filter {
    use nix::libc;
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, apply_filter,
    };
    use std::{env::consts::ARCH, io, process};

    /// System calls with any arguments.
    const CALLS: &[i64] = &[
        // The AF_XDP sockets, and the socket to the daemon.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_recvmsg,
        libc::SYS_close,
        // Where the vDSO has no clock.
        libc::SYS_clock_gettime,
        libc::SYS_restart_syscall,
        // Memory.
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_getrandom,
        // An exit, a signal or a panic.
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigaction,
        libc::SYS_sigaltstack,
        libc::SYS_getpid,
        libc::SYS_gettid,
    ];
    /// Commands of bpf(2), as linux/bpf.h numbers them: BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM, BPF_PROG_RUN. They
    /// use descriptors that the process has.
    const BPF_COMMANDS: [u64; 3] = [2, 3, 10];

    type Result<T> = std::result::Result<T, seccompiler::Error>;

    pub(super) fn apply() -> io::Result<()> {
        let program = program().map_err(io::Error::other)?;
        apply_filter(&program).map_err(io::Error::other)
    }

    fn program() -> Result<BpfProgram> {
        let is = |value| when(0, SeccompCmpOp::Eq, value);
        let not_executable = || when(2, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), 0);
        let any = CALLS.iter().map(|call| Ok((*call, Vec::new())));
        let some = [
            (libc::SYS_bpf, BPF_COMMANDS.into_iter().map(is).collect()),
            (libc::SYS_mmap, vec![not_executable()]),
            (libc::SYS_mprotect, vec![not_executable()]),
            (libc::SYS_write, vec![is(libc::STDERR_FILENO as u64)]),
            (libc::SYS_writev, vec![is(libc::STDERR_FILENO as u64)]),
            (libc::SYS_tgkill, vec![is(process::id().into())]),
        ];
        let some =
            some.into_iter().map(|(call, rules)| Ok((call, rules.into_iter().collect::<Result<_>>()?)));
        let calls = any.chain(some).collect::<Result<_>>()?;
        let filter =
            SeccompFilter::new(calls, SeccompAction::KillProcess, SeccompAction::Allow, ARCH.try_into()?)?;
        Ok(filter.try_into()?)
    }

    /// The rule that an argument must meet.
    fn when(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule> {
        let condition = SeccompCondition::new(argument, Dword, operator, value)?;
        Ok(SeccompRule::new(vec![condition])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        env, fs,
        io::Write,
        os::unix::process::ExitStatusExt,
        process::{Command, ExitStatus, Stdio},
    };

    /// Set for the process that confines itself: what it does then.
    const DEED: &str = "SHUNT_CONFINED_DEED";

    fn confined(deed: &str) -> ExitStatus {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "confine::tests::the_confined_process"]).env(DEED, deed);
        child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
    }

    /// Not a claim of its own: the body of the processes that the test below starts.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no seccomp")]
    fn the_confined_process() {
        let Ok(deed) = env::var(DEED) else { return };
        confine().unwrap();
        match deed.as_str() {
            "works" => {
                // Big enough for a mapping of its own.
                let memory = std::hint::black_box(vec![1u8; 1 << 22]);
                let _ = writeln!(io::stderr(), "{}", memory.len());
            }
            "opens a file" => drop(fs::File::open("/dev/null")),
            "starts a program" => drop(Command::new("/bin/true").status()),
            unknown => panic!("{unknown}"),
        }
        std::process::exit(0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri starts no processes")]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn a_confined_process_works_on_memory_and_is_killed_when_it_opens_a_file_or_starts_a_program() {
        assert_eq!(confined("works").code(), Some(0));
        for deed in ["opens a file", "starts a program"] {
            assert_eq!(confined(deed).signal(), Some(nix::libc::SIGSYS), "{deed}");
        }
    }
}
