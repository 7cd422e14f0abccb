//! The stack of the main thread.

/// Returns unused pages of the main thread's stack to the system, so that forked processes do not have them. No effect
/// on another thread, or if /proc does not show the stack.
///
/// A deep boot leaves megabytes in the stack. So does a Ruby that was compiled with `-fstack-clash-protection`, as by
/// Debian 13: it touches each page of the stack that it reserves, 8 MB or as much as `ulimit -s` allows.
pub fn release_stack() {
    #[cfg(not(portable))]
    linux::release();
}

#[cfg(not(portable))]
mod linux {
    use std::ops::Range;

    use nix::libc;

    /// Bytes below the frame of this function that are kept, for the functions that it calls.
    const MARGIN: usize = 256 * 1024;

    pub(super) fn release() {
        // File names in the list need not be UTF-8.
        let Ok(maps) = std::fs::read("/proc/self/maps") else { return };
        let maps = String::from_utf8_lossy(&maps).into_owned();
        let here = std::ptr::from_ref(&maps).addr();
        let Some(unused) = maps.lines().find_map(stack).and_then(|stack| below(&stack, here)) else { return };
        let start = std::ptr::without_provenance_mut(unused.start);
        // SAFETY: these pages belong to this thread's stack, at least MARGIN bytes below its innermost frame, so
        // nothing uses them. A deep call later finds zeros.
        unsafe { libc::madvise(start, unused.len(), libc::MADV_DONTNEED) };
    }

    /// The addresses of the stack, from its line in `maps` of proc(5).
    fn stack(line: &str) -> Option<Range<usize>> {
        let (start, end) = line.strip_suffix("[stack]")?.split_once(' ')?.0.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    }

    /// The unused part of the stack if `here` is in the innermost frame; None if `here` is on another stack.
    fn below(stack: &Range<usize>, here: usize) -> Option<Range<usize>> {
        // Rounded down to 64 KiB, the largest page.
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
        fn only_the_line_of_the_stack_is_parsed() {
            let others =
                ["", "[stack]", "7ffe-zz rw-p [stack]", "555d0000-555e0000 rw-p 00000000 00:00 0 [heap]"];
            assert_eq!(others.map(stack), [None, None, None, None]);
        }
    }
}
