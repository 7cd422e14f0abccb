//! `stat` of proc(5): what a process or thread is at, and what it has used.

/// The fields of one such file.
#[derive(Debug)]
pub struct ProcStat {
    /// From the state on, which is field 3.
    fields: String,
}

impl ProcStat {
    /// A process's; None if there is no such process, or no proc(5).
    pub fn of_process(pid: u32) -> Option<Self> {
        Self::read(&format!("/proc/{pid}/stat"))
    }

    /// That of a thread of this process.
    pub fn of_thread(id: u32) -> Option<Self> {
        Self::read(&format!("/proc/self/task/{id}/stat"))
    }

    fn read(path: &str) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        // The name before it is in parentheses, may contain some, and need not be UTF-8.
        let name_end = bytes.iter().rposition(|byte| *byte == b')')?;
        let fields = String::from_utf8(bytes.get(name_end + 1..)?.to_vec()).ok()?;
        Some(ProcStat { fields })
    }

    /// `R` computes or would like to; `Z` and `X` have ended.
    pub fn state(&self) -> Option<char> {
        self.field(3)?.chars().next()
    }

    /// A field by its number in proc(5), from 4 on.
    pub fn number(&self, field: usize) -> Option<u64> {
        self.field(field)?.parse().ok()
    }

    /// Whether it has ended, and waits to be reaped.
    pub fn has_ended(&self) -> bool {
        matches!(self.state(), Some('Z' | 'X'))
    }

    fn field(&self, number: usize) -> Option<&str> {
        self.fields.split_ascii_whitespace().nth(number.checked_sub(3)?)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_whatever_the_name_is() {
        let child = std::process::Command::new("sh")
            .args(["-c", "printf 'a) Z 1 (\\377' >/proc/$$/comm && read -r line"])
            .stdin(std::process::Stdio::piped())
            .spawn();
        let mut child = child.expect("a shell");
        crate::patience::until(|| {
            std::fs::read(format!("/proc/{}/comm", child.id()))
                .is_ok_and(|name| name.starts_with(b"a) Z 1 (\xff"))
        });
        let stat = ProcStat::of_process(child.id()).expect("the child");
        assert_eq!((stat.number(4), stat.has_ended()), (Some(std::process::id().into()), false));
        drop(child.stdin.take());
        crate::patience::until(|| ProcStat::of_process(child.id()).is_some_and(|stat| stat.has_ended()));
        child.wait().expect("its end");
        assert!(ProcStat::of_process(child.id()).is_none());
        assert!(ProcStat::of_process(std::process::id()).is_some_and(|stat| stat.number(24) > Some(0)));
    }
}
