//! Builds, loads and attaches the eBPF data plane; the only user of libbpf.
#![allow(unsafe_code, reason = "libbpf is C, and map values are plain memory shared with the kernel")]
