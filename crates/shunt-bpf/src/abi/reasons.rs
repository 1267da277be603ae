//! Why a packet was not forwarded, and why nothing was learned from it.

/// The first reason that says why nothing was learned; those below say why a packet was punted.
pub const FIRST_REFUSAL: usize = 32;

/// Numbers and names of `enum shunt_reason`.
pub const REASONS: &[(usize, &str)] = &[
    (1, "not-ours"),
    (2, "options"),
    (3, "bad-header"),
    (4, "fragment"),
    (5, "mtu"),
    (6, "ttl"),
    (7, "protocol"),
    (8, "tcp-flags"),
    (9, "miss"),
    (10, "stale"),
    (11, "reprove"),
    (12, "no-daemon"),
    (13, "port"),
    (14, "pending"),
    (15, "class"),
    (16, "tags"),
    (17, "capture"),
    (18, "ingress-filter"),
    (19, "ruleset"),
    (32, "not-watched"),
    (33, "aged"),
    (34, "old-epoch"),
    (35, "no-conntrack"),
    (36, "other-tuple"),
    (37, "unconfirmed"),
    (38, "dying"),
    (39, "helper"),
    (40, "seq-adjust"),
    (41, "unreplied"),
    (42, "not-established"),
    (43, "not-liberal"),
    (44, "not-proved"),
    (45, "left-twice"),
    (46, "table-full"),
    (47, "odd-egress"),
    (48, "retiring"),
    (49, "not-routed"),
    (50, "egress-capture"),
    (51, "excluded"),
    (52, "idle"),
    (53, "flushed"),
    (54, "conntrack-gone"),
    (55, "egress-filter"),
];

#[cfg(test)]
mod tests {
    use super::REASONS;

    #[test]
    fn reason_names_are_those_of_the_header() {
        let header = include_str!("../../../../bpf/abi/shunt_abi.h");
        let body = header.split("enum shunt_reason {").nth(1).and_then(|t| t.split("};").next()).unwrap();
        let declared: Vec<(usize, String)> = body
            .lines()
            .filter_map(|line| line.trim().strip_prefix("SHUNT_")?.split_once(" = "))
            .map(|(name, rest)| {
                let number = rest.split(',').next().and_then(|n| n.parse().ok()).unwrap();
                (number, name.to_lowercase().replace('_', "-"))
            })
            .filter(|(number, _)| *number != 0)
            .collect();
        let named: Vec<(usize, String)> = REASONS.iter().map(|(n, s)| (*n, (*s).to_owned())).collect();
        assert_eq!(named, declared);
    }
}
