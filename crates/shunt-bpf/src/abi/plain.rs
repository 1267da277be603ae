//! Structures that are shared as plain memory.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Plain memory: any bytes are a valid value, and there is no padding.
pub trait Plain: FromBytes + IntoBytes + Immutable + Copy {
    /// The value as bytes, as the kernel sees them.
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// Reads a value from the first bytes of a slice. None if the slice is too short.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|(value, _)| value)
    }
}

impl<T: FromBytes + IntoBytes + Immutable + Copy> Plain for T {}

#[cfg(test)]
mod tests {
    use crate::abi::{Key4, Plain};

    #[test]
    fn a_value_read_from_its_own_bytes_is_equal_and_too_few_bytes_are_none() {
        let key = Key4 { src_be: [10, 0, 0, 1], ifindex: 7, l4_proto: 17, ..Key4::default() };
        assert_eq!(Key4::from_bytes(key.bytes()), Some(key));
        assert_eq!(Key4::from_bytes(&key.bytes()[1..]), None);
    }
}
