//! [`process_memory`]: what the process has in memory.

/// Bytes of memory that are the process's own: not pages of files, which the system can have back. `None` where the kernel does not say.
pub(crate) fn process_memory() -> Option<u64> {
    anonymous(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// By the line `RssAnon` of `status` (proc(5)).
fn anonymous(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_do_not_count() {
        assert_eq!(
            anonymous("VmRSS:\t     900 kB\nRssAnon:\t     500 kB\nRssFile:\t 400 kB\n"),
            Some(512_000)
        );
        assert_eq!(anonymous("VmRSS:\t     900 kB\n"), None);
        assert_eq!(anonymous("RssAnon:\t some kB\n"), None);
    }

    #[test]
    fn memory_that_is_used_shows() {
        let before = process_memory().expect("every Linux tells");
        let used = vec![1_u8; 64 << 20];
        let with = process_memory().expect("every Linux tells");
        assert!(with >= before + (48 << 20), "{before} and then {with}, {}", used[used.len() / 2]);
    }
}
