//! Compares the crate's answers with the kernel. Needs root. Every test has its own unnamed network namespaces, which
//! end with the test.

#![expect(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod conntrack;
mod dump;
mod legacy_iptables;
mod limits;
mod listener;
mod netns;
mod subscription;
