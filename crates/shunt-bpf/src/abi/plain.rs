//! Structures that are shared as plain memory.

/// Plain memory: any bytes are a valid value, and there is no padding.
///
/// # Safety
/// Only for `repr(C)` types without padding whose every bit pattern is valid.
pub unsafe trait Plain: PlainField {
    /// The name of the C struct.
    const C_NAME: &'static str;
    /// The names and offsets of all fields.
    const FIELDS: &'static [(&'static str, usize)];

    /// The value as bytes, as the kernel sees them.
    fn bytes(&self) -> &[u8] {
        // SAFETY: a Plain value has no padding, so each of its bytes is initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// Reads a value from the first bytes of a slice. None if the slice is too short.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: there are enough bytes, any of them are valid, and the read does not need alignment.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }
}

/// What a [`Plain`] struct may have as a field: an integer, an array, or such a struct itself.
///
/// # Safety
/// Only for types without padding whose every bit pattern is valid.
pub unsafe trait PlainField: Copy {}

macro_rules! integers {
    ($($integer:ty),*) => {
        // SAFETY: integers.
        $(unsafe impl PlainField for $integer {})*
    };
}
integers!(u8, u16, u32, u64, i8, i16, i32, i64);

// SAFETY: the elements of an array follow each other without padding.
unsafe impl<T: PlainField, const N: usize> PlainField for [T; N] {}

/// Asserts at compile time that a type can be a field.
pub const fn assert_field<T: PlainField>() {}

/// Defines a `repr(C)` struct of integers, arrays and such structs, the twin of a C struct, with [`Plain`] and a zeroed
/// `Default`. Asserts the size, and that there is no padding.
#[macro_export]
macro_rules! plain {
    ($(#[$doc:meta])* $vis:vis struct $name:ident = $c_name:literal, $size:expr; {
        $($(#[$fdoc:meta])* $fvis:vis $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis struct $name { $($(#[$fdoc])* $fvis $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $size, "the size differs from that of the C struct");
        const _: () = assert!(0 $(+ size_of::<$type>())* == $size, "there is a hole");

        const _: () = { $($crate::abi::assert_field::<$type>();)* };

        // SAFETY: repr(C), and the assertions above exclude padding and other fields.
        unsafe impl $crate::abi::PlainField for $name {}

        // SAFETY: as above.
        unsafe impl $crate::abi::Plain for $name {
            const C_NAME: &'static str = $c_name;
            const FIELDS: &'static [(&'static str, usize)] =
                &[$((stringify!($field), ::std::mem::offset_of!($name, $field)),)*];
        }

        impl Default for $name {
            fn default() -> Self {
                // SAFETY: all bits are valid in each field, zeros too.
                unsafe { ::std::mem::zeroed() }
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
