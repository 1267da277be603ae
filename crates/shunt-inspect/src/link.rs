//! Settings and counters of a port.
