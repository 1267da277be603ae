//! What tells the CPU load while data flows.

use crate::{
    dut::{self, Dut},
    load::{Load, Meter},
    traffic::Error,
};
use std::sync::Arc;

#[derive(Debug)]
pub(super) enum Gauge {
    /// Of this machine.
    Here(Box<Meter>),
    /// Of the DUT, since the first look of a run.
    There(Arc<dyn Dut>, Option<dut::Mark>),
}

impl Gauge {
    /// A run begins.
    pub(super) fn begin(&mut self) {
        if let Self::There(_, since) = self {
            *since = None;
        }
    }

    /// The load since the last look.
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
