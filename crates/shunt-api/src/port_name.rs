//! The rule for names of ports, which are those of network devices.

/// Checks a device name by the rules of the kernel: 1 to 15 bytes without `/`, `:` or blanks.
pub(crate) fn check_port_name(name: &str) -> Result<(), String> {
    let good = (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    if good { Ok(()) } else { Err(format!("`{name}` is not a valid name of a network device")) }
}
