//! Memory that C code keeps pointers to.

use std::{ops::Deref, ptr::NonNull};

/// A value on the heap that C code may hold pointers to. They stay valid while the owner moves, or is borrowed: a Box
/// is unique whenever it moves, and ends them.
///
/// C code writes to the value only in calls for which nobody holds a reference to it, except to cells and atomics.
#[derive(Debug)]
pub(crate) struct Fixed<T: ?Sized>(NonNull<T>);

// SAFETY: the value has one owner, as that of a Box.
unsafe impl<T: ?Sized + Send> Send for Fixed<T> {}

impl<T: ?Sized> Fixed<T> {
    pub(crate) fn new(value: impl Into<Box<T>>) -> Self {
        Self(NonNull::from(Box::leak(value.into())))
    }

    /// Valid as long as `self`.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Fixed<[T]> {
    /// The first element; valid as long as `self`.
    pub(crate) fn start(&self) -> NonNull<T> {
        self.0.cast()
    }
}

impl<T: ?Sized> Deref for Fixed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as `self`, and nothing writes to it meanwhile, as said above.
        unsafe { self.0.as_ref() }
    }
}

impl<T: ?Sized> Drop for Fixed<T> {
    fn drop(&mut self) {
        // SAFETY: the value was a Box, and is dropped once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For Miri, which rejects this with a Box in place of `Fixed`.
    #[test]
    fn a_pointer_stays_valid_while_the_owner_moves_and_is_read() {
        let fixed: Fixed<[i32; 3]> = Fixed::new([1, 2, 3]);
        let kept: *mut [i32; 3] = fixed.as_ptr();
        let moved = Some(std::hint::black_box(fixed)).map(|fixed| (fixed, 0));
        let (fixed, _) = moved.as_ref().unwrap();
        for value in 4..10 {
            // SAFETY: the value lives, and nobody has a reference to it.
            unsafe { (*kept)[1] = value };
            assert_eq!(**fixed, [1, value, 3]);
        }
        let words: Fixed<[u64]> = Fixed::new(vec![7; 100]);
        assert_eq!(words.len(), 100);
    }
}
