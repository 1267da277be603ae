//! The messages of the control socket and the configuration file. No logic.
