//! Changes settings with the program `ethtool`, reads them back by netlink, and gives the command that undoes the
//! change.

use super::Link;
use serde::Serialize;
use std::{
    fmt,
    process::{Command, Stdio},
};

/// A group of settings; one option of `shunt link`, and one of ethtool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Flow control.
    Pause,
    /// Sizes of rings.
    Ring,
    /// Interrupt coalescing.
    Coalesce,
    /// Numbers of queues.
    Channels,
    /// Features.
    Offload,
    /// Energy-Efficient Ethernet.
    Eee,
    /// Speed, duplex and autonegotiation.
    Mode,
}

/// Settings of one group to change, in the order typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The group that the settings belong to.
    pub group: Group,
    /// Names and values.
    pub values: Vec<(String, String)>,
}

/// A setting that was changed and read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// The group that the setting belongs to.
    pub group: Group,
    /// Its name in ethtool, such as `rx-usecs`.
    pub name: String,
    /// The value before; absent if it could not be read.
    pub before: Option<String>,
    /// The requested value.
    pub wanted: String,
    /// The value read back; absent if the driver does not report it.
    pub after: Option<String>,
}

/// Why a setting was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The program `ethtool` cannot be run, with the reason.
    #[error("cannot run ethtool: {0}; install it, since the kernel is asked for changes through it")]
    NoProgram(String),
    /// The driver or the kernel refused the change.
    #[error("{command}: {message}")]
    Refused {
        /// The command line that failed.
        command: String,
        /// What ethtool printed about the refusal.
        message: String,
    },
}

impl Group {
    const ALL: [Self; 7] =
        [Self::Pause, Self::Ring, Self::Coalesce, Self::Channels, Self::Offload, Self::Eee, Self::Mode];

    /// The option of `shunt link`, without its dashes.
    pub fn option(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Ring => "ring",
            Self::Coalesce => "coalesce",
            Self::Channels => "channels",
            Self::Offload => "offload",
            Self::Eee => "eee",
            Self::Mode => "mode",
        }
    }

    fn ethtool(self) -> &'static str {
        match self {
            Self::Pause => "-A",
            Self::Ring => "-G",
            Self::Coalesce => "-C",
            Self::Channels => "-L",
            Self::Offload => "-K",
            Self::Eee => "--set-eee",
            Self::Mode => "-s",
        }
    }

    /// The valid names of the group; empty if every name is valid.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Pause => &["autoneg", "rx", "tx"],
            Self::Ring => &["rx", "tx"],
            Self::Coalesce => {
                &["rx-usecs", "rx-frames", "tx-usecs", "tx-frames", "adaptive-rx", "adaptive-tx"]
            }
            Self::Channels => &["rx", "tx", "combined"],
            Self::Offload => &[],
            Self::Eee => &["eee"],
            Self::Mode => &["speed", "duplex", "autoneg"],
        }
    }

    fn is_number(self, name: &str) -> bool {
        match self {
            Self::Ring | Self::Channels => true,
            Self::Coalesce => !name.starts_with("adaptive"),
            Self::Mode => name == "speed",
            _ => false,
        }
    }
}

impl Setting {
    /// Parses `rx=512,tx=256`, and for pause and EEE also `on` and `off`.
    ///
    /// # Errors
    /// The problem, and the expected form.
    pub fn parse(group: Group, text: &str) -> Result<Self, String> {
        let both = |value: &str| ["rx", "tx"].map(|name| (name.to_owned(), value.to_owned())).to_vec();
        let one = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let values = match (group, text) {
            (Group::Pause, "on" | "off") => both(text),
            (Group::Pause, "auto") => one("autoneg", "on"),
            (Group::Eee, "on" | "off") => one("eee", text),
            _ => text.split(',').map(|pair| parse_pair(group, pair)).collect::<Result<_, _>>()?,
        };
        Ok(Self { group, values })
    }

    /// The arguments of `ethtool` for this change.
    fn arguments(&self, port: &str) -> Vec<String> {
        let mut all = vec![self.group.ethtool().to_owned(), port.to_owned()];
        all.extend(self.values.iter().flat_map(|(name, value)| [name.clone(), value.clone()]));
        all
    }

    /// Changes the settings. Runs nothing if all values are already set.
    ///
    /// # Errors
    /// If the driver refuses; the error has ethtool's message.
    pub fn apply(&self, before: &Link) -> Result<(), SettingError> {
        let is_set =
            |(name, value): &(String, String)| before.setting(self.group, name).as_ref() == Some(value);
        if self.values.iter().all(is_set) {
            return Ok(());
        }
        let arguments = self.arguments(&before.nic.name);
        let output = Command::new("ethtool").args(&arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| SettingError::NoProgram(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let mut message =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        if self.group == Group::Offload && message.contains("bit name not found") {
            message = format!("no such offload; `ethtool -k {}` lists them", before.nic.name);
        } else if let Some(way_out) = self.way_out(before) {
            message = format!("{message}; {way_out}");
        }
        Err(SettingError::Refused { command: format!("ethtool {}", arguments.join(" ")), message })
    }

    /// What to type instead of a change that was refused: the largest values, as far as the driver names them.
    fn way_out(&self, before: &Link) -> Option<String> {
        let option = self.group.option();
        let port = &before.nic.name;
        let most = |name: &str| match self.group {
            Group::Ring => {
                let rings = before.rings.as_ref()?;
                if name == "rx" { rings.rx_max } else { rings.tx_max }
            }
            Group::Channels => before.channels.get(&format!("{name}-max")).copied(),
            _ => None,
        };
        let bounds: Vec<String> = self
            .values
            .iter()
            .filter_map(|(name, _)| Some(format!("{name}={}", most(name).filter(|most| *most > 0)?)))
            .collect();
        if !bounds.is_empty() {
            return Some(format!("the most is {}", bounds.join(",")));
        }
        let is_unknown = |(name, _): &(String, String)| before.setting(self.group, name).is_none();
        self.values.iter().all(is_unknown).then(|| {
            format!(
                "the driver of {port} has none of these settings: leave out --{option}, or name another port"
            )
        })
    }

    /// Compares each requested value with the values before and after.
    pub fn applied(&self, before: &Link, after: &Link) -> Vec<Applied> {
        let one = |(name, value): &(String, String)| Applied {
            group: self.group,
            name: name.clone(),
            before: before.setting(self.group, name),
            wanted: value.clone(),
            after: after.setting(self.group, name),
        };
        self.values.iter().map(one).collect()
    }
}

impl Applied {
    /// Whether the value read back is the requested one; None if it cannot be read.
    pub fn took(&self) -> Option<bool> {
        self.after.as_ref().map(|after| *after == self.wanted)
    }
}

/// The command that undoes the changes; None if nothing changed.
pub fn undo(port: &str, applied: &[Applied]) -> Option<String> {
    let mut command = format!("shunt link {port}");
    let empty = command.len();
    for group in Group::ALL {
        let changed = applied.iter().filter(|one| one.group == group && one.before != one.after);
        let pairs: Vec<String> =
            changed.filter_map(|one| Some(format!("{}={}", one.name, one.before.as_ref()?))).collect();
        if !pairs.is_empty() {
            command += &format!(" --{} {}", group.option(), pairs.join(","));
        }
    }
    (command.len() > empty).then_some(command)
}

impl Link {
    /// The value of a setting in the form in which it is typed; None if it cannot be read.
    pub fn setting(&self, group: Group, name: &str) -> Option<String> {
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        match group {
            Group::Pause => {
                let pause = self.pause.as_ref()?;
                match name {
                    "autoneg" => Some(switch(pause.autoneg)),
                    "rx" => Some(switch(pause.rx)),
                    _ => Some(switch(pause.tx)),
                }
            }
            Group::Ring => {
                let rings = self.rings.as_ref()?;
                Some(if name == "rx" { rings.rx? } else { rings.tx? }.to_string())
            }
            Group::Coalesce => {
                let value = *self.coalesce.get(name)?;
                Some(if name.starts_with("adaptive") { switch(value != 0) } else { value.to_string() })
            }
            Group::Channels => Some(self.channels.get(name)?.to_string()),
            Group::Offload => self.offload(name).map(switch),
            Group::Eee => Some(switch(!self.eee.as_ref()?.starts_with("disabled"))),
            Group::Mode => match name {
                "autoneg" => self.autoneg.map(switch),
                "speed" => Some(self.nic.speed_mbps?.to_string()),
                _ => self.duplex.clone(),
            },
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.option())
    }
}

fn parse_pair(group: Group, pair: &str) -> Result<(String, String), String> {
    let names = group.names();
    let expected = || match names {
        [] => "expected NAME=on|off, such as gro=off or tx-tcp-segmentation=on".to_owned(),
        _ => format!("expected NAME=VALUE, where NAME is {}", names.join(", ")),
    };
    let (name, value) = pair.split_once('=').ok_or_else(expected)?;
    let name = if group == Group::Offload { kernel_name(name) } else { name };
    let is_name =
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') && !name.starts_with('-');
    if !is_name || name.is_empty() || !names.is_empty() && !names.contains(&name) {
        return Err(expected());
    }
    let right = match group {
        _ if group.is_number(name) => value.parse::<u32>().is_ok(),
        Group::Mode if name == "duplex" => matches!(value, "full" | "half"),
        _ => matches!(value, "on" | "off"),
    };
    let form = if group.is_number(name) {
        "a number"
    } else if name == "duplex" {
        "full or half"
    } else {
        "on or off"
    };
    if right {
        Ok((name.to_owned(), value.to_owned()))
    } else {
        Err(format!("{name}: expected {form}, got `{value}`"))
    }
}

/// The kernel's name for a short name of ethtool.
fn kernel_name(name: &str) -> &str {
    match name {
        "gro" => "rx-gro",
        "lro" => "rx-lro",
        "gso" => "tx-generic-segmentation",
        "tso" => "tx-tcp-segmentation",
        "rx" => "rx-checksum",
        "sg" => "tx-scatter-gather",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Offload, Pause, Rings},
        *,
    };

    fn link(rx: bool, ring: u32) -> Link {
        let mut link = Link::default();
        link.nic.name = "eth0".to_owned();
        link.pause = Some(Pause { autoneg: true, rx, tx: rx });
        link.rings = Some(Rings { rx: Some(ring), rx_max: Some(512), tx: Some(64), tx_max: Some(64) });
        link.offloads.insert("rx-gro".to_owned(), Offload { on: true, fixed: false });
        link
    }

    #[test]
    fn settings_are_parsed_and_passed_to_ethtool() {
        let arguments = |group, text: &str| {
            Setting::parse(group, text).map(|setting| setting.arguments("eth0").join(" "))
        };
        assert_eq!(arguments(Group::Pause, "on").unwrap(), "-A eth0 rx on tx on");
        assert_eq!(arguments(Group::Pause, "rx=on,tx=off").unwrap(), "-A eth0 rx on tx off");
        assert_eq!(arguments(Group::Ring, "rx=512").unwrap(), "-G eth0 rx 512");
        assert_eq!(
            arguments(Group::Coalesce, "rx-usecs=50,adaptive-rx=off").unwrap(),
            "-C eth0 rx-usecs 50 adaptive-rx off"
        );
        assert_eq!(arguments(Group::Offload, "gro=off").unwrap(), "-K eth0 rx-gro off");
        assert_eq!(arguments(Group::Mode, "speed=100,duplex=full").unwrap(), "-s eth0 speed 100 duplex full");
        for (group, text) in [
            (Group::Pause, "maybe"),
            (Group::Ring, "rx=many"),
            (Group::Ring, "rq=5"),
            (Group::Coalesce, "adaptive-rx=5"),
            (Group::Offload, "--help=on"),
            (Group::Offload, "=on"),
            (Group::Mode, "duplex=both"),
            (Group::Eee, ""),
        ] {
            assert!(Setting::parse(group, text).is_err(), "{group} {text}");
        }
    }

    #[test]
    fn the_undo_command_has_the_values_that_changed() {
        let (before, after) = (link(false, 128), link(true, 512));
        let settings = [Setting::parse(Group::Ring, "rx=512,tx=64"), Setting::parse(Group::Pause, "on")];
        let applied: Vec<_> =
            settings.into_iter().flat_map(|one| one.unwrap().applied(&before, &after)).collect();
        assert_eq!(undo("eth0", &applied).unwrap(), "shunt link eth0 --pause rx=off,tx=off --ring rx=128");
        assert!(applied.iter().all(|one| one.took() == Some(true)));
        // The printed undo command must be valid input.
        assert!(Setting::parse(Group::Pause, "rx=off,tx=off").is_ok());
        let same: Vec<_> = Setting::parse(Group::Ring, "rx=256").unwrap().applied(&before, &before);
        assert_eq!((undo("eth0", &same), same[0].took()), (None, Some(false)));
    }
}
