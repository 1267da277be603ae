//! The CPU load while data flows.

use crate::{
    dut::{self, Dut},
    load::{Load, Meter},
    traffic::Error,
};
#[derive(Debug)]
pub(super) enum Gauge {
    /// The load of this machine.
    Here(Box<Meter>),
    /// The load of the DUT, since the first look of a run.
    There(Dut, Option<dut::Mark>),
}

impl Gauge {
    /// Begins a run.
    pub(super) fn begin(&mut self) {
        if let Self::There(_, since) = self {
            *since = None;
        }
    }

    /// The load since the previous look; None at the first look on a DUT.
    pub(super) fn look(&mut self) -> Result<Option<Load>, Error> {
        match self {
            Self::Here(meter) => Ok(Some(meter.read()?)),
            Self::There(dut, since) => {
                let load = since.take().map(|mark| dut.load_since(mark)).transpose()?;
                *since = Some(dut.mark()?);
                Ok(load)
            }
        }
    }
}
