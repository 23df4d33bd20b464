//! How busy the machine is, as the kernel says in `/proc/loadavg`.

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
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    parse(&std::fs::read_to_string("/proc/loadavg").ok()?, processors)
}

fn parse(text: &str, processors: usize) -> Option<MachineLoad> {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse::<f64>().ok());
    let (minute, _, quarter_hour) = (words.next()??, words.next()??, words.next()??);
    let processors = u32::try_from(processors).map_or(f64::INFINITY, f64::from);
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
        assert!(machine_load().is_some_and(|load| load.minute >= 0.0), "every Linux tells");
    }
}
