//! The daemon and its commands: what they refuse, what they show, what other programs on the router do to learning, and
//! what is left behind at the end. Tests with bounds on the time are in `../reaction`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod access;
mod bad_input;
mod bursts;
mod captures;
mod clsact;
mod conntrack_helpers;
mod descriptor_store;
mod engines;
mod excluded;
mod external;
mod faults;
mod filters;
mod hand_over;
mod hand_over_load;
mod history_command;
mod instances;
mod left_behind;
mod legacy_rules;
mod limits;
mod log;
mod look_ahead;
mod luci;
mod metrics;
mod off_command;
mod openapi;
mod ports;
mod previews;
mod programs;
mod quality_command;
mod readers;
mod refusals;
mod reload;
mod restarts;
mod savings;
mod service_manager;
mod slow_flows;
mod systemd_unit;
mod top_command;
mod tracked;
mod transmit;
mod unsupported_rules;
mod up_and_down;
mod usage_command;
mod verify_checksums;
mod verify_command;
mod watch_command;
mod watched;
mod why_command;
