//! Structures that are shared as plain memory.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Plain memory, the twin of a C struct: any bytes are a valid value, and there is no padding.
pub trait Plain: FromBytes + IntoBytes + Immutable + Copy {
    /// The name of the C struct.
    const C_NAME: &'static str;
    /// The names and offsets of all fields.
    const FIELDS: &'static [(&'static str, usize)];

    /// The value as bytes, as the kernel sees them.
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// Reads a value from the first bytes of a slice. None if the slice is too short.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|(value, _)| value)
    }
}

/// Defines a `repr(C)` struct of integers, arrays and such structs, the twin of a C struct, with [`Plain`] and a zeroed
/// `Default`. The crate that uses this needs `zerocopy`, which refuses padding and other fields. Asserts the size.
#[macro_export]
macro_rules! plain {
    ($(#[$doc:meta])* $vis:vis struct $name:ident = $c_name:literal, $size:expr; {
        $($(#[$fdoc:meta])* $fvis:vis $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[derive(::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::Immutable)]
        $vis struct $name { $($(#[$fdoc])* $fvis $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $size, "the size differs from that of the C struct");

        impl $crate::abi::Plain for $name {
            const C_NAME: &'static str = $c_name;
            const FIELDS: &'static [(&'static str, usize)] =
                &[$((stringify!($field), ::std::mem::offset_of!($name, $field)),)*];
        }

        impl Default for $name {
            fn default() -> Self {
                ::zerocopy::FromZeros::new_zeroed()
            }
        }
    };
}

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
