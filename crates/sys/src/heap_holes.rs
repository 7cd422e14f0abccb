//! The holes of glibc's heap: free blocks between used ones.
//!
//! A forked process allocates in the holes first, and copies each page that it writes to, together with the used blocks
//! on that page. For a Rails page with four workers, forked from a warm worker, this costs 10 to 13 MB of 160 on Ruby
//! 3.3.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::CStr;

    use nix::libc;

    /// The largest block that stays allocated, in bytes. Larger holes have pages without used blocks, and are left to
    /// the children.
    const LARGEST_KEPT: usize = 4096;

    /// The largest block that is tried, in bytes. Blocks from M_MMAP_THRESHOLD (mallopt(3)) on would not come from this
    /// heap.
    const MAX_BLOCK: usize = 64 * 1024;

    /// The smallest block of malloc, in bytes, and the difference between block sizes.
    const MIN_BLOCK: usize = 24;
    const BLOCK_STEP: usize = 16;

    /// Fills large holes first, so that the blocks that stay come from small holes.
    pub(super) fn fill() {
        if library(c"malloc") != library(c"gnu_get_libc_version") {
            return;
        }
        // The total never exceeds the free bytes, in case the figures are wrong for a heap of several parts.
        let mut left = free_and_top().0;
        let mut large = Vec::with_capacity(left / LARGEST_KEPT);
        let mut size = MAX_BLOCK;
        while size >= MIN_BLOCK {
            let (_, top) = free_and_top();
            while left >= size {
                // SAFETY: malloc accepts any size.
                let block = unsafe { libc::malloc(size) };
                if block.is_null() || block as usize >= top {
                    // SAFETY: the pointer is null, or a block that only this function has.
                    unsafe { libc::free(block) };
                    break;
                }
                left -= size;
                if size > LARGEST_KEPT {
                    large.push(block);
                }
            }
            size -= if size > LARGEST_KEPT { size / 8 } else { BLOCK_STEP };
        }
        for block in large {
            // SAFETY: the block is from malloc, only this function has it, and it is freed once.
            unsafe { libc::free(block) };
        }
    }

    /// The number of free bytes, and the start of the top of the heap. The top was never used, or was freed next to
    /// unused memory.
    fn free_and_top() -> (usize, usize) {
        // mallinfo2(3) needs glibc 2.33. This call counts modulo 4 GiB.
        // SAFETY: any thread may call both at any time. sbrk(0) only returns the end of the heap.
        let (info, end) = unsafe { (libc::mallinfo(), libc::sbrk(0) as usize) };
        (info.fordblks as u32 as usize, end.saturating_sub(info.keepcost as u32 as usize))
    }

    /// The address of the library that contains a function (dladdr(3)).
    fn library(function: &CStr) -> Option<usize> {
        let function = crate::exported(function)?;
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: dladdr(3) accepts any address, and fills the structure unless it returns 0.
        unsafe {
            (libc::dladdr(function.as_ptr(), found.as_mut_ptr()) != 0)
                .then(|| found.assume_init().dli_fbase as usize)
        }
    }
}

/// Fills the holes for good, so that forked processes allocate only in new pages. No effect with another malloc than
/// glibc's.
///
/// Must be called on the main thread, whose heap this is. Takes milliseconds.
pub fn fill_heap_holes() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::fill();
}
