//! Quantities with their units, in texts and tables.

#[cfg(feature = "full")]
mod measured;

#[cfg(feature = "full")]
pub(crate) use measured::{
    LOAD_HEADS, LOAD_NOTE, NO_LINE, bounds, line_share, load, loads, loss_interval, variant,
};
pub(crate) use shunt_wire::units::{
    bits_per_second, bytes, change_percent, count, number, packets_per_second, percent, quantity, rounded,
    time, unsigned_zero,
};
