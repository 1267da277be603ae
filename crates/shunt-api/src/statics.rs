//! Flows and routes that are added by hand: the messages, and the file that `shunt flow load` reads.

use crate::{
    document,
    failure::{Failure, FailureCode},
    flows::{Proto, Tuple},
    port_name::check_port_name,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use shunt_wire::Mac;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// Static flows, and the named routes that they use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StaticTable {
    /// Named routes.
    pub route: Vec<StaticRoute>,
    /// Flows; a flow with the key of an existing static flow replaces it.
    pub flow: Vec<StaticFlow>,
}

/// A named route: a port and a next hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StaticRoute {
    /// The name by which flows refer to the route; not empty.
    pub name: String,
    /// The name of the port through which packets leave.
    pub out_port: String,
    /// The destination MAC of leaving packets: that of the next hop.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dmac: Mac,
    /// The source MAC of leaving packets; if absent, the MAC of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub smac: Option<Mac>,
    /// The VLAN tags of leaving packets, outermost first; at most two, each 1 to 4094.
    #[serde(default)]
    pub vlans: Vec<u16>,
}

/// A static flow: one direction of traffic, and what is done with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StaticFlow {
    /// The name of the port through which packets arrive.
    pub in_port: String,
    /// The VLAN tags of arriving packets, outermost first; at most two, each 1 to 4094.
    #[serde(default)]
    pub in_vlans: Vec<u16>,
    /// The transport protocol.
    pub proto: Proto,
    /// Source address of arriving packets.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub src: IpAddr,
    /// Source port of arriving packets.
    pub sport: u16,
    /// Destination address of arriving packets.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dst: IpAddr,
    /// Destination port of arriving packets.
    pub dport: u16,
    /// The destination MAC that arriving packets must have; if absent, the MAC of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub dmac: Option<Mac>,
    /// The new source, as `ADDRESS:PORT`; if absent, the source is not rewritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub snat: Option<SocketAddr>,
    /// The new destination, as `ADDRESS:PORT`; if absent, the destination is not rewritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub dnat: Option<SocketAddr>,
    /// The route of leaving packets.
    pub route: RouteChoice,
    /// The skb mark of leaving packets; 0 is none.
    #[serde(default)]
    pub mark: u32,
    /// The skb priority of leaving packets: a tc class handle, or a number below 65536; 0 is the default.
    #[serde(default)]
    pub priority: u32,
    /// The largest packet that takes the fast path, in bytes from the L3 header on; if absent, the MTU of the egress
    /// port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// A route: by its name, or in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum RouteChoice {
    /// The name of a [`StaticRoute`] of this table, or of one that the daemon already has.
    Named(String),
    /// A route without a name.
    Inline(Hop),
}

/// A route without a name: a port and a next hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Hop {
    /// The name of the port through which packets leave.
    pub out_port: String,
    /// The destination MAC of leaving packets: that of the next hop.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dmac: Mac,
    /// The source MAC of leaving packets; if absent, the MAC of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub smac: Option<Mac>,
    /// The VLAN tags of leaving packets, outermost first; at most two, each 1 to 4094.
    #[serde(default)]
    pub vlans: Vec<u16>,
}

/// The key of a static flow. No two static flows have the same key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StaticKey {
    /// The name of the port through which packets arrive.
    pub in_port: String,
    /// The VLAN tags of arriving packets, outermost first; at most two, each 1 to 4094.
    #[serde(default)]
    pub in_vlans: Vec<u16>,
    /// The transport protocol.
    pub proto: Proto,
    /// Source address of arriving packets.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub src: IpAddr,
    /// Source port of arriving packets.
    pub sport: u16,
    /// Destination address of arriving packets.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dst: IpAddr,
    /// Destination port of arriving packets.
    pub dport: u16,
}

/// The static flows and routes to remove. Flows and routes that do not exist are ignored and not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StaticRemoval {
    /// Remove every static flow and every named route.
    pub all: bool,
    /// The keys of the flows to remove.
    pub flow: Vec<StaticKey>,
    /// The names of the routes to remove. It is an error if a remaining flow uses one of them.
    pub route: Vec<String>,
}

impl StaticTable {
    /// Reads a TOML file and checks it. An error is one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Self = document::read(text)?;
        table.check().map_err(|failure| failure.message)?;
        Ok(table)
    }

    /// Finds errors that do not depend on the machine, such as mixed address families.
    pub fn check(&self) -> Result<(), Failure> {
        for (index, route) in self.route.iter().enumerate() {
            let name = &route.name;
            if name.is_empty() {
                return Err(wrong("a route has no name; add `name = ...`"));
            }
            if self.route[..index].iter().any(|other| other.name == *name) {
                return Err(wrong(format!("route `{name}` is defined twice")));
            }
            route.hop().check().map_err(|why| wrong(format!("route `{name}`: {why}")))?;
        }
        for flow in &self.flow {
            flow.check().map_err(|why| wrong(format!("flow {}: {why}", flow.key())))?;
        }
        Ok(())
    }
}

impl StaticRoute {
    /// The same route without its name.
    pub fn hop(&self) -> Hop {
        Hop { out_port: self.out_port.clone(), dmac: self.dmac, smac: self.smac, vlans: self.vlans.clone() }
    }
}

impl StaticFlow {
    /// The key of this flow.
    pub fn key(&self) -> StaticKey {
        StaticKey {
            in_port: self.in_port.clone(),
            in_vlans: self.in_vlans.clone(),
            proto: self.proto,
            src: self.src,
            sport: self.sport,
            dst: self.dst,
            dport: self.dport,
        }
    }

    /// Addresses and ports of arriving packets.
    pub const fn tuple(&self) -> Tuple {
        Tuple { src: self.src, dst: self.dst, sport: self.sport, dport: self.dport }
    }

    /// Addresses and ports of leaving packets.
    pub fn new_tuple(&self) -> Tuple {
        let tuple = self.tuple();
        Tuple::new(self.snat.unwrap_or(tuple.source()), self.dnat.unwrap_or(tuple.destination()))
    }

    fn check(&self) -> Result<(), String> {
        check_port_name(&self.in_port).map_err(|why| format!("in_port: {why}"))?;
        check_vlans("in_vlans", &self.in_vlans)?;
        let v4 = self.src.is_ipv4();
        let same = |addr: IpAddr| addr.is_ipv4() == v4;
        if !same(self.dst) {
            return Err("src and dst are of different address families".to_owned());
        }
        if self.snat.is_some_and(|to| !same(to.ip())) {
            return Err("snat: another address family than src".to_owned());
        }
        if self.dnat.is_some_and(|to| !same(to.ip())) {
            return Err("dnat: another address family than dst".to_owned());
        }
        match &self.route {
            RouteChoice::Named(name) if name.is_empty() => Err("route: the name is empty".to_owned()),
            RouteChoice::Named(_) => Ok(()),
            RouteChoice::Inline(hop) => hop.check().map_err(|why| format!("route: {why}")),
        }
    }
}

impl Hop {
    fn check(&self) -> Result<(), String> {
        check_port_name(&self.out_port).map_err(|why| format!("out_port: {why}"))?;
        if self.smac.is_some_and(Mac::is_group) {
            return Err("smac: a source MAC cannot be a multicast address".to_owned());
        }
        check_vlans("vlans", &self.vlans)
    }
}

fn check_vlans(key: &str, vlans: &[u16]) -> Result<(), String> {
    if vlans.len() > 2 {
        return Err(format!("{key}: {} tags given; the most is 2", vlans.len()));
    }
    match vlans.iter().find(|id| !(1..=4094).contains(*id)) {
        Some(id) => Err(format!("{key}: expected 1 to 4094, got {id}")),
        None => Ok(()),
    }
}

fn wrong(why: impl Into<String>) -> Failure {
    Failure::new(FailureCode::BadRequest, why)
}

impl fmt::Display for StaticKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.proto, self.in_port)?;
        for id in &self.in_vlans {
            write!(f, ".{id}")?;
        }
        let (src, dst) = (SocketAddr::new(self.src, self.sport), SocketAddr::new(self.dst, self.dport));
        write!(f, " {src} > {dst}")
    }
}

// Written by hand, because the derived implementation of an untagged enum cannot report which key is wrong.
impl<'de> Deserialize<'de> for RouteChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RouteChoice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a route, or out_port, dmac, smac and vlans")
            }

            fn visit_str<E>(self, name: &str) -> Result<RouteChoice, E> {
                Ok(RouteChoice::Named(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RouteChoice, A::Error> {
                Hop::deserialize(MapAccessDeserializer::new(map)).map(RouteChoice::Inline)
            }
        }
        from.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests;
