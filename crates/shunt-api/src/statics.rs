//! Flows and routes put in by hand: the messages, and the file that `shunt flow load` reads.

use crate::{
    config::check_port_name,
    document,
    failure::{Failure, FailureCode},
    flows::{Proto, Tuple},
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

/// Flows and the routes they name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StaticTable {
    /// Named routes, before the flows that name them.
    pub route: Vec<StaticRoute>,
    /// Flows; one that is already there is replaced.
    pub flow: Vec<StaticFlow>,
}

/// A next hop with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StaticRoute {
    /// What flows call it.
    pub name: String,
    /// The port.
    pub out_port: String,
    /// The next hop's MAC.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dmac: Mac,
    /// The port's own where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub smac: Option<Mac>,
    /// Tags to put on, outermost first.
    #[serde(default)]
    pub vlans: Vec<u16>,
}

/// One direction of traffic, and what is done with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StaticFlow {
    /// Where it comes in.
    pub in_port: String,
    /// With these tags, outermost first.
    #[serde(default)]
    pub in_vlans: Vec<u16>,
    /// TCP or UDP.
    pub proto: Proto,
    /// Source address as it comes in.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub src: IpAddr,
    /// Source port as it comes in.
    pub sport: u16,
    /// Destination address as it comes in.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dst: IpAddr,
    /// Destination port as it comes in.
    pub dport: u16,
    /// The MAC it must be sent to; the port's own where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub dmac: Option<Mac>,
    /// The source it leaves with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub snat: Option<SocketAddr>,
    /// The destination it leaves with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub dnat: Option<SocketAddr>,
    /// Where it goes.
    pub route: RouteChoice,
    /// The skb mark.
    #[serde(default)]
    pub mark: u32,
    /// The skb priority.
    #[serde(default)]
    pub priority: u32,
    /// The largest L3 packet; the egress port's MTU where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// A route by its name, or spelled out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum RouteChoice {
    /// A [`StaticRoute`] of this table, or one that the daemon has already.
    Named(String),
    /// In place.
    Inline(Hop),
}

/// A next hop without a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Hop {
    /// The port.
    pub out_port: String,
    /// The next hop's MAC.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dmac: Mac,
    /// The port's own where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub smac: Option<Mac>,
    /// Tags to put on, outermost first.
    #[serde(default)]
    pub vlans: Vec<u16>,
}

/// What tells a static flow from all others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StaticKey {
    /// Where it comes in.
    pub in_port: String,
    /// With these tags, outermost first.
    #[serde(default)]
    pub in_vlans: Vec<u16>,
    /// TCP or UDP.
    pub proto: Proto,
    /// Source address as it comes in.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub src: IpAddr,
    /// Source port as it comes in.
    pub sport: u16,
    /// Destination address as it comes in.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dst: IpAddr,
    /// Destination port as it comes in.
    pub dport: u16,
}

/// What to remove. What is not there is not counted, and is no failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StaticRemoval {
    /// Every static flow and every named route.
    pub all: bool,
    /// These flows.
    pub flow: Vec<StaticKey>,
    /// The named routes, which no flow may name any longer.
    pub route: Vec<String>,
}

impl StaticTable {
    /// The contents of a file, or what is wrong with them in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Self = document::read(text)?;
        table.check().map_err(|failure| failure.message)?;
        Ok(table)
    }

    /// What can be told to be wrong without a look at the machine.
    pub fn check(&self) -> Result<(), Failure> {
        for (index, route) in self.route.iter().enumerate() {
            let name = &route.name;
            if name.is_empty() {
                return Err(wrong("a route needs a name"));
            }
            if self.route[..index].iter().any(|other| other.name == *name) {
                return Err(wrong(format!("route `{name}` is there twice")));
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
    /// The route without its name.
    pub fn hop(&self) -> Hop {
        Hop { out_port: self.out_port.clone(), dmac: self.dmac, smac: self.smac, vlans: self.vlans.clone() }
    }
}

impl StaticFlow {
    /// What tells it from the others.
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

    /// As it comes in.
    pub const fn tuple(&self) -> Tuple {
        Tuple { src: self.src, dst: self.dst, sport: self.sport, dport: self.dport }
    }

    /// As it leaves.
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
            return Err("src and dst are of different families".to_owned());
        }
        if self.snat.is_some_and(|to| !same(to.ip())) {
            return Err("snat: of another family than src".to_owned());
        }
        if self.dnat.is_some_and(|to| !same(to.ip())) {
            return Err("dnat: of another family than dst".to_owned());
        }
        match &self.route {
            RouteChoice::Named(name) if name.is_empty() => Err("route: it has no name".to_owned()),
            RouteChoice::Named(_) => Ok(()),
            RouteChoice::Inline(hop) => hop.check().map_err(|why| format!("route: {why}")),
        }
    }
}

impl Hop {
    fn check(&self) -> Result<(), String> {
        check_port_name(&self.out_port).map_err(|why| format!("out_port: {why}"))?;
        if self.smac.is_some_and(Mac::is_group) {
            return Err("smac: a source cannot be a group".to_owned());
        }
        check_vlans("vlans", &self.vlans)
    }
}

fn check_vlans(key: &str, vlans: &[u16]) -> Result<(), String> {
    if vlans.len() > 2 {
        return Err(format!("{key}: {} tags are more than two", vlans.len()));
    }
    match vlans.iter().find(|id| !(1..=4094).contains(*id)) {
        Some(id) => Err(format!("{key}: {id} is not within 1 to 4094")),
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

// Written out, because the derived form of an untagged enum cannot say which key is wrong.
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
