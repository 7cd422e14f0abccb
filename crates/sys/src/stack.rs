//! The main thread's stack.

/// Gives back what the main thread's stack has taken and does not use any more, so that processes forked from now on have none of it.
/// Without effect on another thread, and where /proc does not tell the stack's place.
///
/// A boot that has gone deep leaves megabytes there. So does Ruby itself, where its compiler has been told to touch each page of a
/// stack that it sets aside (`-fstack-clash-protection`, as by Debian 13): 8 MB, all that `ulimit -s` allows.
pub fn release_stack() {
    #[cfg(not(portable))]
    linux::release();
}

#[cfg(not(portable))]
mod linux {
    use std::ops::Range;

    use nix::libc;

    /// Bytes below this function's frame that stay: what it calls takes some of them.
    const MARGIN: usize = 256 * 1024;

    pub(super) fn release() {
        // Names of files need not be UTF-8.
        let Ok(maps) = std::fs::read("/proc/self/maps") else { return };
        let maps = String::from_utf8_lossy(&maps).into_owned();
        let here = std::ptr::from_ref(&maps).addr();
        let Some(unused) = maps.lines().find_map(stack).and_then(|stack| below(&stack, here)) else { return };
        let start = std::ptr::without_provenance_mut(unused.start);
        // SAFETY: these pages are of this thread's own stack, and at least MARGIN bytes below its innermost frame, so nothing in them is
        // in use. A call that goes so deep later finds zeros there.
        unsafe { libc::madvise(start, unused.len(), libc::MADV_DONTNEED) };
    }

    /// The place of the stack, from its line in proc(5)'s maps.
    fn stack(line: &str) -> Option<Range<usize>> {
        let (start, end) = line.strip_suffix("[stack]")?.split_once(' ')?.0.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    }

    /// The part of the stack that is unused where `here` is in the innermost frame; None if that is on another one.
    fn below(stack: &Range<usize>, here: usize) -> Option<Range<usize>> {
        // Whole pages, which have 64 KiB at most.
        let end = here.checked_sub(MARGIN)? & !0xffff;
        (stack.contains(&here) && stack.start < end).then_some(stack.start..end)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_unused_part_ends_below_the_innermost_frame() {
            let line = "7ffe7125e000-7ffe71a5d000 rw-p 00000000 00:00 0                          [stack]";
            let stack = stack(line).expect("a stack");
            assert_eq!(stack, 0x7ffe_7125_e000..0x7ffe_71a5_d000);
            assert_eq!(below(&stack, 0x7ffe_71a5_bcd8), Some(0x7ffe_7125_e000..0x7ffe_71a1_0000));
            let others = [0x7ffe_7125_e100, 0x7ffe_7125_d000, 0x7ffe_71a5_d000, 0];
            assert_eq!(others.map(|here| below(&stack, here)), [None, None, None, None]);
        }

        #[test]
        fn only_the_line_of_the_stack_tells_its_place() {
            let others =
                ["", "[stack]", "7ffe-zz rw-p [stack]", "555d0000-555e0000 rw-p 00000000 00:00 0 [heap]"];
            assert_eq!(others.map(stack), [None, None, None, None]);
        }
    }
}
