//! The definitions that come with Shunt, and the selection of those that fit this machine.

use super::{Definitions, Problems, device_tree::DeviceTree, native::socs_of, parse_toml_for};

const FILES: [&str; 6] = [
    include_str!("../../definitions/emac.toml"),
    include_str!("../../definitions/enet.toml"),
    include_str!("../../definitions/gem.toml"),
    include_str!("../../definitions/macb.toml"),
    include_str!("../../definitions/mii.toml"),
    include_str!("../../definitions/ravb.toml"),
];

/// The definitions for a SoC such as `imx6q`; `mdio` stands for the registers of every PHY. Empty for an unknown SoC.
///
/// # Errors
/// If a file that comes with Shunt is wrong, which a test excludes.
pub fn builtin(soc: &str) -> Result<Definitions, Problems> {
    let mut all = Definitions::default();
    for file in FILES {
        all.extend(parse_toml_for(file, soc)?);
    }
    Ok(all)
}

/// The SoCs that [`builtin`] knows, in alphabetical order.
pub fn socs() -> Vec<String> {
    let mut all: Vec<String> = FILES.into_iter().flat_map(socs_of).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The SoC of a machine with this device tree; None if [`builtin`] does not know it.
pub fn soc_of_machine(tree: &DeviceTree) -> Option<String> {
    let known = socs();
    let names = tree.compatible_of_root();
    let mut names = names.iter().map(|name| name.rsplit(',').next().unwrap_or_default());
    names.find_map(|name| {
        let name = match name {
            "imx6dl" => "imx6dl",
            "zynq-7000" => "zynq",
            other => other,
        };
        known.iter().find(|soc| *soc == name || name.starts_with("zynqmp") && *soc == "zynqmp").cloned()
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Access, Counter, parse_dat},
        *,
    };

    #[test]
    fn every_file_that_comes_with_shunt_is_right() {
        for soc in socs() {
            let all = builtin(&soc).unwrap();
            assert!(!all.registers.is_empty() && all.warnings.is_empty(), "{soc}");
            let mut names: Vec<_> = all.registers.iter().map(|one| &one.name).collect();
            let mut addresses: Vec<_> = all.registers.iter().map(|one| (&one.block, one.offset)).collect();
            names.sort_unstable();
            addresses.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{soc}");
            assert!(addresses.windows(2).all(|pair| pair[0] != pair[1]), "{soc}: {addresses:?}");
            for register in &all.registers {
                let bits: u64 = register.fields.iter().map(|field| field.mask()).fold(0, |all, one| {
                    assert_eq!(all & one, 0, "{} has fields that overlap", register.name);
                    all | one
                });
                assert!(bits <= register.max(), "{}", register.name);
                assert!(register.offset % register.bytes() == 0 || register.width == 16, "{}", register.name);
            }
            assert!(all.blocks.values().all(|block| !block.source.is_empty()), "{soc}");
        }
        assert!(builtin("pdp11").unwrap().registers.is_empty());
    }

    #[test]
    fn each_soc_has_its_own_blocks_and_registers() {
        let blocks = |soc: &str| -> Vec<(String, u64)> {
            builtin(soc).unwrap().blocks.into_iter().map(|(name, block)| (name, block.base)).collect()
        };
        assert_eq!(blocks("imx6q"), [("ENET".to_owned(), 0x0218_8000)]);
        assert_eq!(blocks("imx7d"), [("ENET1".to_owned(), 0x30be_0000), ("ENET2".to_owned(), 0x30bf_0000)]);
        assert_eq!(blocks("zynqmp").len(), 4);
        assert_eq!(blocks("versal").len(), 2);
        assert_eq!(blocks("sun8i-h3"), [("EMAC".to_owned(), 0x01c3_0000)]);
        assert_eq!(blocks("r8a7795"), [("AVB".to_owned(), 0xe680_0000)]);
        // The second generation has no delay of RGMII clocks.
        assert!(builtin("r8a7790").unwrap().register("AVB_APSR").is_none());
        assert!(builtin("r8a7795").unwrap().register("AVB_APSR").is_some());
        assert_eq!(blocks("sama5d3"), [("GEM".to_owned(), 0xf002_8000), ("MACB".to_owned(), 0xf802_c000)]);
        // Only chips with AVB have three rings.
        assert!(builtin("imx6q").unwrap().register("ENET_RCMR1").is_none());
        assert!(builtin("imx8mq").unwrap().register("ENET_RCMR1").is_some());
        let gem = builtin("zynq").unwrap();
        let overruns = gem.register("GEM1_RX_OVERRUN_ERRORS").unwrap();
        assert!(overruns.read_clears && overruns.access == Access::ReadOnly);
        assert_eq!(overruns.counter, Some(Counter { bits: 10, saturates: true }));
    }

    #[test]
    fn every_counter_says_what_it_counts() {
        for soc in socs().iter().filter(|soc| *soc != "at32ap7000" && !soc.starts_with("at91")) {
            let all = builtin(soc).unwrap();
            let counters = all.registers.iter().filter(|register| register.counter.is_some());
            for counter in counters.filter(|counter| !counter.name.starts_with("MACB")) {
                assert!(!counter.about.is_empty(), "{soc}: {}", counter.name);
            }
        }
    }

    /// Addresses that Boundary Devices' devregs gives for the i.MX6Q.
    #[test]
    fn registers_of_the_imx6q_have_the_addresses_of_other_tools() {
        let theirs = parse_dat(
            "ENET_RCR 0x02188084\nENET_RSEM 0x02188194\nENET_IEEE_T_FDXFC 0x02188270\nENET_IEEE_R_MACERR 0x021882D8",
        );
        let all = builtin("imx6q").unwrap();
        for register in theirs.unwrap().registers {
            let ours = all.register(&register.name).unwrap();
            assert_eq!(all.address(ours), Some(register.offset), "{}", register.name);
        }
    }
}
