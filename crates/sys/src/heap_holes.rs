//! The holes of glibc's heap: what is free between blocks that are in use.
//!
//! A process that is forked allocates in them first. Each page that it writes to for that is its own from then on, with all that the page
//! holds besides: of a Rails page with four workers, forked anew from a warm one, 10 to 13 MB of 160 on Ruby 3.3.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::CStr;

    use nix::libc;

    /// Bytes of the largest blocks that stay. Larger holes have pages of their own, and are left to the children.
    const LARGEST_KEPT: usize = 4096;

    /// Bytes of the first blocks: below M_MMAP_THRESHOLD (mallopt(3)), from which on they would not come from this heap.
    const LARGEST: usize = 64 * 1024;

    /// The smallest block that there is, and the distance of sizes.
    const SMALLEST: usize = 24;
    const STEP: usize = 16;

    /// Larger ones first, so that blocks that stay come from small holes.
    pub(super) fn fill() {
        if library(c"malloc") != library(c"gnu_get_libc_version") {
            return;
        }
        // Never more than was free, whatever the figures mean in a heap of several parts.
        let mut left = free_and_top().0;
        let mut large = Vec::with_capacity(left / LARGEST_KEPT);
        let mut size = LARGEST;
        while size >= SMALLEST {
            let (_, top) = free_and_top();
            while left >= size {
                // SAFETY: any size will do.
                let block = unsafe { libc::malloc(size) };
                if block.is_null() || block as usize >= top {
                    // SAFETY: null, or a block that nobody else has.
                    unsafe { libc::free(block) };
                    break;
                }
                left -= size;
                if size > LARGEST_KEPT {
                    large.push(block);
                }
            }
            size -= if size > LARGEST_KEPT { size / 8 } else { STEP };
        }
        for block in large {
            // SAFETY: it is malloc's, nobody else has it, and it is freed once.
            unsafe { libc::free(block) };
        }
    }

    /// Bytes that are free, and where the top of the heap begins: what was never in use, or has become one with that.
    fn free_and_top() -> (usize, usize) {
        // SAFETY: any thread may call both at any time; sbrk(0) only tells where the heap ends. Not mallinfo2(3), which glibc has from
        // 2.33 on: this one counts to 4 GiB.
        let (info, end) = unsafe { (libc::mallinfo(), libc::sbrk(0) as usize) };
        (info.fordblks as u32 as usize, end.saturating_sub(info.keepcost as u32 as usize))
    }

    /// Where the library begins that has a function (dladdr(3)).
    fn library(function: &CStr) -> Option<usize> {
        let function = crate::exported(function)?;
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: it takes any address, and fills the structure in unless it returns 0.
        unsafe {
            (libc::dladdr(function.as_ptr(), found.as_mut_ptr()) != 0)
                .then(|| found.assume_init().dli_fbase as usize)
        }
    }
}

/// Fills the holes for good, so that a process forked from now on allocates in pages of its own alone. Without effect where malloc is
/// not glibc's.
///
/// It must be called on the main thread, whose heap it is. It takes milliseconds.
pub fn fill_heap_holes() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::fill();
}
