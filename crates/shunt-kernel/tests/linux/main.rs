//! What the crate says, against what the kernel does. Needs root; every test has network namespaces of its own, which
//! have no name and go with the test.

#![expect(clippy::unwrap_used, reason = "what cannot be set up is a failed test")]

mod conntrack;
mod dump;
mod ear;
mod legacy;
mod netns;
mod watch;
