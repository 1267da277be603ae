//! How many ports the memory of this machine has room for.

use crate::abi::{self, Counters};
use nix::sys::sysinfo::sysinfo;

/// The most ports: their counters, which each possible CPU has, take at most a 256th of the memory. Some virtual
/// machines have hundreds of possible CPUs.
#[must_use]
pub fn ports_max() -> u32 {
    let memory = sysinfo().map_or(0, |machine| machine.ram_total());
    fitting_ports(memory, libbpf_rs::num_possible_cpus().unwrap_or(1) as u64)
}

fn fitting_ports(memory: u64, cpus: u64) -> u32 {
    const LEAST: u64 = 64;
    let each = cpus * size_of::<Counters>() as u64;
    (memory / 256 / each).clamp(LEAST, abi::PORTS_MAX.into()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_ports_as_a_256th_of_the_memory_has_counters_for() {
        const GIB: u64 = 1 << 30;
        assert_eq!(fitting_ports(8 * GIB, 4), 1024);
        assert_eq!(fitting_ports(GIB / 4, 4), 225);
        assert_eq!(fitting_ports(4 * GIB, 128), 112);
        assert_eq!(fitting_ports(0, 1024), 64);
    }
}
