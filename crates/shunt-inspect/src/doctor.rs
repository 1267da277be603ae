//! Rules over a recorded system.
