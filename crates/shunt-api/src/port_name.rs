//! The rule for names of ports, which are those of network devices.

/// Checks a device name by the rules of the kernel: 1 to 15 bytes without `/`, `:` or blanks.
pub(crate) fn check_port_name(name: &str) -> Result<(), String> {
    let good = (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    if good { Ok(()) } else { Err(format!("`{name}` is not a valid name of a network device")) }
}

/// The message for a name that no device has.
pub fn no_device(name: &str) -> String {
    let each = if name.contains(',') { "; name each device on its own, without commas" } else { "" };
    format!("{name}: no such device in this network namespace; see `ip link`{each}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_names_in_one_are_answered_with_the_way_out() {
        assert!(
            no_device("lan0,lan1").ends_with("see `ip link`; name each device on its own, without commas")
        );
        assert!(no_device("lan0").ends_with("see `ip link`"));
    }
}
