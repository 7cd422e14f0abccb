//! `stat` of proc(5): the state of a process or thread, and the resources that it has used.

/// The fields of one `stat` file.
#[derive(Debug)]
pub struct ProcStat {
    /// The text from field 3 on, the state.
    fields: String,
}

impl ProcStat {
    /// Reads the file of a process; None if there is no such process, or no proc(5).
    pub fn of_process(pid: u32) -> Option<Self> {
        Self::read(&format!("/proc/{pid}/stat"))
    }

    /// Reads the file of a thread of this process.
    pub fn of_thread(id: u32) -> Option<Self> {
        Self::read(&format!("/proc/self/task/{id}/stat"))
    }

    fn read(path: &str) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        // The name of the process, in parentheses before the state, may contain parentheses and need not be UTF-8.
        let name_end = bytes.iter().rposition(|byte| *byte == b')')?;
        let fields = String::from_utf8(bytes.get(name_end + 1..)?.to_vec()).ok()?;
        Some(ProcStat { fields })
    }

    /// The state: `R` runs or waits for a processor; `Z` and `X` have ended.
    pub fn state(&self) -> Option<char> {
        self.field(3)?.chars().next()
    }

    /// A field by its number in proc(5), from 4 on.
    pub fn number(&self, field: usize) -> Option<u64> {
        self.field(field)?.parse().ok()
    }

    /// Whether the process or thread has ended and was not reaped.
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
    fn the_fields_are_read_whatever_the_name_is() {
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
