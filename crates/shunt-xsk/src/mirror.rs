//! Twins of C structs that may hold pointers.

/// Defines a `repr(C)` struct, the twin of a C struct that may hold pointers, with the names and offsets of its fields.
macro_rules! mirror {
    ($(#[$doc:meta])* $vis:vis struct $name:ident = $c_name:literal; {
        $($(#[$fdoc:meta])* $fvis:vis $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        $vis struct $name { $($(#[$fdoc])* $fvis $field: $type,)* }

        #[cfg(test)]
        impl $name {
            pub(crate) fn add(values: &mut ::shunt_bpf::abi::layout::Values) {
                values.insert($c_name.to_owned(), size_of::<Self>() as u64);
                $(values.insert(
                    concat!($c_name, ".", stringify!($field)).to_owned(),
                    ::std::mem::offset_of!($name, $field) as u64,
                );)*
            }
        }
    };
}
pub(crate) use mirror;
