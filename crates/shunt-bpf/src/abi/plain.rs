//! Structures as they lie in memory.

/// Plain memory: any bytes are a value, and there is no padding.
///
/// # Safety
/// Only for `repr(C)` types without padding whose every bit pattern is valid.
pub unsafe trait Plain: Copy {
    /// Its bytes, as the kernel sees them.
    fn bytes(&self) -> &[u8] {
        // SAFETY: a Plain value has no padding, so each of its bytes is initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The value of these bytes; none when their number is wrong.
    fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: there are enough bytes, any of them are valid, and the read does not need alignment.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }
}

macro_rules! plain {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $size);
        const _: () = assert!(0 $(+ size_of::<$type>())* == $size, "there is a hole");

        // SAFETY: repr(C), integers only, and the assertion above excludes padding.
        unsafe impl Plain for $name {}

        impl Default for $name {
            fn default() -> Self {
                // SAFETY: all fields are integers or arrays of them, for which zero is a value.
                unsafe { std::mem::zeroed() }
            }
        }
    };
}
pub(super) use plain;

#[cfg(test)]
mod tests {
    use crate::abi::{Key4, Plain};

    #[test]
    fn bytes_and_values_agree() {
        let key = Key4 { src_be: [10, 0, 0, 1], ifindex: 7, l4_proto: 17, ..Key4::default() };
        assert_eq!(Key4::of(key.bytes()), Some(key));
        assert_eq!(Key4::of(&key.bytes()[1..]), None);
    }
}
