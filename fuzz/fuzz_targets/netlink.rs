//! Runs `shunt_fuzz::netlink` in libFuzzer or, built without it, on the files that are given as arguments.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    shunt_fuzz::netlink(bytes);
});

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    shunt_fuzz::replay(shunt_fuzz::netlink)
}
