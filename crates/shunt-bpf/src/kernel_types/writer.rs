//! Writes BTF.

use libbpf_sys::btf;
use std::{
    ffi::{CString, c_int},
    io,
    ptr::NonNull,
    slice,
};

/// BTF that is being written. Types refer to each other by their numbers; 0 is void.
pub(super) struct Writer(NonNull<btf>);

/// A member of a structure or union.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) type_id: c_int,
    pub(super) bit_offset: u32,
    /// 0 if it is no bit field.
    pub(super) bits: u8,
}

impl Writer {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the function has no arguments, and returns memory that is ours, or NULL.
        let new = unsafe { libbpf_sys::btf__new_empty() };
        NonNull::new(new).map(Self).ok_or_else(io::Error::last_os_error)
    }

    pub(super) fn int(&mut self, name: &str, bytes: usize, encoding: c_int) -> io::Result<c_int> {
        let name = CString::new(name)?;
        // SAFETY: the name ends with a NUL byte, and libbpf copies it. The same holds below.
        number(unsafe { libbpf_sys::btf__add_int(self.0.as_ptr(), name.as_ptr(), bytes as _, encoding) })
    }

    /// A pointer to anything.
    pub(super) fn pointer(&mut self) -> io::Result<c_int> {
        // SAFETY: the BTF is ours, as below.
        number(unsafe { libbpf_sys::btf__add_ptr(self.0.as_ptr(), 0) })
    }

    pub(super) fn array(&mut self, index: c_int, of: c_int, count: usize) -> io::Result<c_int> {
        // SAFETY: as above.
        number(unsafe {
            libbpf_sys::btf__add_array(self.0.as_ptr(), index, of, u32::try_from(count).unwrap_or(u32::MAX))
        })
    }

    pub(super) fn composite(
        &mut self,
        name: &str,
        is_struct: bool,
        bytes: usize,
        members: &[Member],
    ) -> io::Result<c_int> {
        let add = if is_struct { libbpf_sys::btf__add_struct } else { libbpf_sys::btf__add_union };
        let name = CString::new(name)?;
        // SAFETY: as above.
        let id =
            number(unsafe { add(self.0.as_ptr(), name.as_ptr(), u32::try_from(bytes).unwrap_or(u32::MAX)) })?;
        for Member { name, type_id, bit_offset, bits } in members {
            let name = CString::new(name.as_str())?;
            // SAFETY: as above.
            number(unsafe {
                libbpf_sys::btf__add_field(
                    self.0.as_ptr(),
                    name.as_ptr(),
                    *type_id,
                    *bit_offset,
                    (*bits).into(),
                )
            })?;
        }
        Ok(id)
    }

    pub(super) fn enumeration(
        &mut self,
        name: &str,
        bytes: usize,
        values: &[(String, i64)],
    ) -> io::Result<c_int> {
        let name = CString::new(name)?;
        // SAFETY: as above.
        let id = number(unsafe {
            libbpf_sys::btf__add_enum(
                self.0.as_ptr(),
                name.as_ptr(),
                u32::try_from(bytes).unwrap_or(u32::MAX),
            )
        })?;
        for (name, value) in values {
            let name = CString::new(name.as_str())?;
            // SAFETY: as above.
            number(unsafe { libbpf_sys::btf__add_enum_value(self.0.as_ptr(), name.as_ptr(), *value) })?;
        }
        Ok(id)
    }

    /// The declaration of a structure without members.
    pub(super) fn declaration(&mut self, name: &str) -> io::Result<c_int> {
        let name = CString::new(name)?;
        // SAFETY: as above.
        number(unsafe {
            libbpf_sys::btf__add_fwd(self.0.as_ptr(), name.as_ptr(), libbpf_sys::BTF_FWD_STRUCT)
        })
    }

    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the data belongs to the BTF, has this many bytes, and is copied at once.
        unsafe {
            let data =
                NonNull::new(libbpf_sys::btf__raw_data(self.0.as_ptr(), &mut bytes).cast_mut().cast::<u8>());
            let data = data.ok_or_else(io::Error::last_os_error)?;
            Ok(slice::from_raw_parts(data.as_ptr(), bytes as usize).to_vec())
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: nothing else refers to it.
        unsafe { libbpf_sys::btf__free(self.0.as_ptr()) }
    }
}

/// The number of a new type, or the error.
fn number(returned: c_int) -> io::Result<c_int> {
    if returned < 0 { Err(io::Error::from_raw_os_error(-returned)) } else { Ok(returned) }
}
