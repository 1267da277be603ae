//! Parses bytes as netlink messages, as a table of legacy iptables, and as /proc/net/packet.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| shunt_kernel::fuzz::parse(data));
