//! The programs that a start loads, and the changes of the configuration that need others.

use shunt_api::{ChangeEffect, ChecksumChoice, Config, EngineChoice};

/// The programs that were loaded at the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Loaded {
    pub(crate) xdp: bool,
    /// The XDP programs verify checksums.
    pub(crate) verifies_xdp: bool,
    pub(crate) external: bool,
}

impl Loaded {
    /// Those that a configuration asks for.
    pub(crate) fn by(config: &Config) -> Self {
        let xdp = !matches!(config.engine, EngineChoice::Tc | EngineChoice::External);
        Self {
            xdp,
            verifies_xdp: xdp && config.verify_checksums == ChecksumChoice::Always,
            external: config.uses_external(),
        }
    }

    /// Why a change needs a restart; `None` if it needs none.
    pub(crate) fn obstacle(self, key: &str, new: &Config) -> Option<String> {
        let wanted = Self::by(new);
        let answer = Config::answers().iter().find(|answer| answer.key == key)?;
        let lacks = match key {
            "engine" | "external_ports" => wanted.xdp && !self.xdp || wanted.external && !self.external,
            "verify_checksums" => wanted.verifies_xdp && self.xdp && !self.verifies_xdp,
            _ => answer.effect == ChangeEffect::Restart,
        };
        let why = if answer.effect == ChangeEffect::Restart { Some(answer.how) } else { answer.restart_when };
        why.filter(|_| lacks).map(str::to_owned)
    }
}
