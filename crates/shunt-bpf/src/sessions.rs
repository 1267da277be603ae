//! The sessions of PPPoE that the programs have seen.

use crate::{
    DataPlane, Error,
    abi::{Control, Plain, Session, SessionKey},
    maps::{CONTROL_MAP, read_variable},
};
use libbpf_rs::{MapCore, MapFlags};
use std::{collections::BTreeMap, time::Duration};

/// By the ifindex of the ppp port.
const SESSIONS: &str = "shunt_sessions";
/// The ppp ports, by what tells the sessions of an Ethernet port apart.
const SESSION_PORTS: &str = "shunt_session_ports";

impl DataPlane {
    /// The Ethernet port by which packets of a ppp port were seen to leave in a session, by ifindex.
    pub fn sessions(&self) -> BTreeMap<u32, u32> {
        // Without learning, there is no such map.
        let Some(sessions) = self.maps.find(SESSIONS) else { return BTreeMap::new() };
        let session = |ppp: Vec<u8>| {
            let value = sessions.lookup(&ppp, MapFlags::ANY).ok()??;
            Some((u32::from_ne_bytes(ppp.try_into().ok()?), Session::from_bytes(&value)?.below))
        };
        sessions.keys().filter_map(session).collect()
    }

    /// Writes the session of a ppp port, as the program at egress does when a packet leaves. That was `ago` before the
    /// last heartbeat.
    ///
    /// # Errors
    /// If a map cannot be read or written.
    pub fn put_session(
        &self,
        ppp: u32,
        session: Session,
        key: &SessionKey,
        ago: Duration,
    ) -> Result<(), Error> {
        let control: Control = read_variable(self.maps.get(CONTROL_MAP)?, CONTROL_MAP)?;
        let proved_ticks = control.heartbeat_ticks - u64::from(self.control.ticks(ago));
        let session = Session { proved_ticks, ..session };
        self.maps.update(SESSIONS, &ppp.to_ne_bytes(), session.bytes())?;
        self.maps.update(SESSION_PORTS, key.bytes(), &ppp.to_ne_bytes())
    }

    /// Forgets the session of a port that goes.
    pub(crate) fn forget_session(&self, ifindex: u32) -> Result<(), Error> {
        // Without learning, there is no such map.
        let Some(ports) = self.maps.find(SESSION_PORTS) else { return Ok(()) };
        self.maps.delete(SESSIONS, &ifindex.to_ne_bytes())?;
        let is_its = |key: &Vec<u8>| {
            let port = ports.lookup(key, MapFlags::ANY).ok().flatten();
            port.is_some_and(|port| port == ifindex.to_ne_bytes())
        };
        let keys: Vec<_> = ports.keys().filter(is_its).collect();
        keys.iter().try_for_each(|key| self.maps.delete(SESSION_PORTS, key))
    }
}
