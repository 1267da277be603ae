//! What is set up before the first stream.

use super::StreamSpec;
use crate::traffic::{Error, TrafficSpec};
use shunt_gen::{Shape, Sizes};
use shunt_wire::line::LinkSpeed;
use std::net::{Ipv4Addr, SocketAddr};

/// Sizes that hold for a whole session.
pub(super) struct Setup {
    /// Flows of all streams in one direction.
    pub(super) flows: u32,
    /// Largest frame with FCS.
    pub(super) largest: u32,
    /// Highest rate of all streams together in packets/s; None if a stream has none.
    pub(super) most_pps: Option<f64>,
}

impl Setup {
    /// The sizes for streams that are known beforehand.
    pub(super) fn for_streams(streams: &[StreamSpec], speed: Option<LinkSpeed>) -> Result<Self, Error> {
        let mut setup = Self { flows: 0, largest: 64, most_pps: Some(0.0) };
        for stream in streams {
            let table = stream
                .course(speed)
                .and_then(|course| Ok(course.timetable()?))
                .map_err(|error| stream.named(error))?;
            let pps = table.most_pps();
            setup.most_pps = setup.most_pps.zip(pps).map(|(all, one)| all + one);
            setup.largest = setup.largest.max(stream.shape.sizes.largest());
            setup.flows = setup.flows.saturating_add(stream.shape.flow_count().map_err(|e| stream.named(e))?);
        }
        Ok(setup)
    }

    /// A spec with frames of the largest size, which a network of our own is made for.
    pub(super) fn network_spec(&self) -> Result<TrafficSpec, Error> {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 1));
        Ok(TrafficSpec::for_shape(Shape::udp(any, any, Sizes::fixed(self.largest)?)))
    }
}
