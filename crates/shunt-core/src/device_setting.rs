//! Settings of a device that have messages of their own.

/// A sysctl of `net.ipv4.conf` or `net.ipv6.conf` that forwarding depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sysctl {
    /// `ipv4`, `ipv6` or `mpls`.
    pub family: &'static str,
    /// Whose setting it is.
    pub of: SysctlOf,
    /// Its name, such as `forwarding`.
    pub name: &'static str,
    /// Its value from now on.
    pub value: i32,
}

/// The devices that a sysctl is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SysctlOf {
    /// All of them: `conf.all`.
    All,
    /// Those to come: `conf.default`.
    Default,
    /// The device with this ifindex.
    Device(u32),
}

/// The message about a sysctl of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Netconf {
    /// This one has changed.
    Changed(Sysctl),
    /// All sysctls of a device that comes or goes.
    OfDevice,
    /// The message does not say what has changed.
    Unknown,
}

/// A device as a port of a bridge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BridgePort {
    /// A hash of the settings: what somebody has set.
    pub settings: u64,
    /// The state of the spanning tree (BR_STATE_*), which is `disabled` without a carrier.
    pub state: u8,
    /// A hash of what the bridge derives: the cost, and what the spanning tree has found.
    pub derived: u64,
    /// The settings of [`BridgePort::SWITCHES`] that are on, the first one in the lowest bit.
    pub switches: u32,
    /// The cost of the spanning tree.
    pub cost: u32,
    /// The priority of the spanning tree.
    pub priority: u16,
    /// Whether multicast routers are behind it: 0 never, 1 if they say so, 2 always, 3 for a while.
    pub mcast_router: u8,
}

impl Sysctl {
    /// `net.ipv4.conf.wan0.rp_filter = 1`. `device` is the name of the device, if the sysctl is for one.
    pub(crate) fn words(&self, device: &str) -> String {
        self.words_of(match self.of {
            SysctlOf::All => "all",
            SysctlOf::Default => "default",
            SysctlOf::Device(_) => device,
        })
    }

    /// The same for a device, `all` or `default`.
    pub(crate) fn words_of(&self, of: &str) -> String {
        let Self { family, name, value, .. } = self;
        format!("net.{family}.conf.{of}.{name} = {value}")
    }
}

impl BridgePort {
    /// The settings that are on or off, as `bridge -d link` names them.
    pub const SWITCHES: [&'static str; 17] = [
        "hairpin",
        "guard",
        "root_block",
        "fastleave",
        "learning",
        "flood",
        "proxy_arp",
        "proxy_arp_wifi",
        "mcast_flood",
        "mcast_to_unicast",
        "vlan_tunnel",
        "bcast_flood",
        "neigh_suppress",
        "isolated",
        "locked",
        "mab",
        "neigh_vlan_suppress",
    ];

    /// The settings that are others than before, each with its value from now on.
    pub(crate) fn settings_since(self, before: Self) -> Vec<String> {
        let differ = self.switches ^ before.switches;
        let switches = Self::SWITCHES.iter().enumerate().filter(|(bit, _)| differ >> bit & 1 == 1);
        let is_on = |bit: usize| if self.switches >> bit & 1 == 1 { "on" } else { "off" };
        let mut named: Vec<String> = switches.map(|(bit, name)| format!("{name} {}", is_on(bit))).collect();
        named.extend((self.priority != before.priority).then(|| format!("priority {}", self.priority)));
        let router = self.mcast_router != before.mcast_router;
        named.extend(router.then(|| format!("mcast_router {}", self.mcast_router)));
        named
    }

    /// The name of the state, as `bridge link` has it.
    pub(crate) const fn state_name(self) -> &'static str {
        match self.state {
            0 => "disabled",
            1 => "listening",
            2 => "learning",
            3 => "forwarding",
            4 => "blocking",
            _ => "unknown",
        }
    }
}
