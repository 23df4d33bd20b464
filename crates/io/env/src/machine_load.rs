//! How busy the machine is, as the kernel says in `/proc/loadavg`.

use std::sync::OnceLock;

/// Averages of how many threads of the machine run or wait for a processor or a disk, per processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineLoad {
    /// Over a minute.
    pub minute: f64,
    /// The same over fifteen minutes.
    pub quarter_hour: f64,
}

/// `None` where the kernel does not say.
pub(crate) fn machine_load() -> Option<MachineLoad> {
    // All of the machine's, whatever this process may use of them: so are those that the load is of.
    static PROCESSORS: OnceLock<u32> = OnceLock::new();
    let processors = *PROCESSORS.get_or_init(|| {
        let list = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
        list.and_then(|list| processors_of(&list)).unwrap_or(1).max(1)
    });
    parse(&std::fs::read_to_string("/proc/loadavg").ok()?, processors)
}

/// How many processors a list of the kernel's names, such as `0-3,8`.
#[must_use]
pub fn processors_of(list: &str) -> Option<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first).map(|more| more.saturating_add(1))
    };
    let mut ranges = list.trim().split(',').map(range);
    ranges.try_fold(0_u32, |sum, count| Some(sum.saturating_add(count?)))
}

fn parse(text: &str, processors: u32) -> Option<MachineLoad> {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse::<f64>().ok());
    let (minute, _, quarter_hour) = (words.next()??, words.next()??, words.next()??);
    let processors = f64::from(processors);
    Some(MachineLoad { minute: minute / processors, quarter_hour: quarter_hour / processors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_that_of_each_processor() {
        let load = MachineLoad { minute: 1.0, quarter_hour: 0.25 };
        assert_eq!(parse("4.00 2.50 1.00 3/517 12345\n", 4), Some(load));
        assert_eq!((parse("4.00 x 1.00", 4), parse("", 4)), (None, None));
        assert_eq!(
            (processors_of("0-3,8\n"), processors_of("0"), processors_of("3-1")),
            (Some(5), Some(1), None)
        );
        assert!(machine_load().is_some_and(|load| load.minute >= 0.0), "every Linux tells");
    }
}
