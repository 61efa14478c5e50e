//! The mapped file, and the only `unsafe` of this crate: bytes of a shared mapping seen as the records that lie there.

use std::fs::File;
use std::io;

use memmap2::{MmapOptions, MmapRaw};

use super::words::{Account, Header, Lane, Resource, Task};
use crate::layout::Shape;

/// A ledger in memory.
pub struct Map {
    map: MmapRaw,
    shape: Shape,
}

impl Map {
    /// Maps a file that is at least as long as the shape says.
    pub fn new(file: &File, shape: Shape) -> io::Result<Map> {
        Ok(Map { map: MmapOptions::new().len(shape.bytes()).map_raw(file)?, shape })
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn range(&self) -> (*mut u8, usize) {
        (self.map.as_mut_ptr(), self.map.len())
    }

    #[inline]
    pub fn header(&self) -> &Header {
        // SAFETY: as of `part`; the header is the first part.
        unsafe { &*self.map.as_ptr().cast() }
    }

    pub fn resources(&self) -> &[Resource] {
        // SAFETY: the resources are there, by the shape.
        unsafe { self.part(crate::layout::HEADER_BYTES, self.shape.resources) }
    }

    #[inline]
    pub fn lanes(&self) -> &[Lane] {
        // SAFETY: the lanes are there, by the shape.
        unsafe { self.part(self.shape.lanes_at(), self.shape.lanes) }
    }

    #[inline]
    pub fn tasks(&self) -> &[Task] {
        // SAFETY: the tasks are there, by the shape.
        unsafe { self.part(self.shape.tasks_at(), self.shape.tasks) }
    }

    #[inline]
    pub fn accounts(&self) -> &[Account] {
        // SAFETY: the accounts are there, by the shape.
        unsafe { self.part(self.shape.accounts_at(), self.shape.accounts) }
    }

    /// One of the five parts.
    ///
    /// # Safety
    /// `count` records of type `T` must lie at `offset`, all within the shape's bytes, and `T` must be one of the types
    /// in `words`: made of atomics and unused integers alone, for which all bytes are valid and others may write at any time.
    /// `offset` is then a multiple of 64, and the mapping begins at a page, so every record is aligned. The mapping is as long as the
    /// shape says from `new` on until it is dropped, which no reference outlives. Who cuts the file makes the next access a signal, not
    /// a wrong one; only the application's own user can.
    #[inline]
    unsafe fn part<T>(&self, offset: usize, count: u32) -> &[T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(offset).cast(), count as usize) }
    }
}
