//! The machine whose costs are measured.

use std::fs;

/// The lines of /proc/cpuinfo that name the CPU, on x86, ARM, MIPS.
const MODELS: [&str; 4] = ["model name", "CPU part", "Hardware", "cpu model"];

/// The machine, its kernel and this daemon: costs of others are not used.
pub(crate) fn machine() -> String {
    let version = fs::read_to_string("/proc/version").unwrap_or_default();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    describe(&version, &cpus)
}

fn describe(version: &str, cpus: &str) -> String {
    let model =
        cpus.lines().find(|line| MODELS.iter().any(|name| line.starts_with(name))).unwrap_or_default();
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    format!("{}; {count} CPUs, {model}; shuntd {}", version.trim(), env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_its_kernel_its_cpus_and_this_version() {
        let cpus = "processor\t: 0\nmodel name\t: Fast\n\nprocessor\t: 1\nmodel name\t: Fast\n";
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            describe("Linux 6.1\n", cpus),
            format!("Linux 6.1; 2 CPUs, model name\t: Fast; shuntd {version}")
        );
        assert!(machine().starts_with("Linux version"), "{}", machine());
    }
}
