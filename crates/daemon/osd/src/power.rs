//! [`PowerMeter`]: what the OSD's machine draws. Measured where its processors tell by RAPL (`/sys/class/powercap`: energy of each package, that
//! of memory only where it is part of it; nothing of drives, fans and losses), else modelled by how busy its processors were, and called so.

use nacre_msg::{Power, PowerSource};
use nacre_options::Values;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Packages that are looked at; boards have eight at most.
const ZONES_MAX: usize = 64;

/// What a processor draws that does nothing, and one that is busy, in watts.
#[derive(Debug, Clone, Copy)]
struct Model {
    idle_watts: f64,
    busy_watts: f64,
}

/// Seconds since the machine's start, and seconds that its processors together were idle.
type Uptime = (f64, f64);

/// What it has read last.
#[derive(Debug, Default)]
pub(crate) struct PowerMeter {
    uptime: Option<Uptime>,
    /// Microjoules by zone.
    zones: BTreeMap<String, u64>,
}

/// Between two samples: of less a figure would be noise, and in more a counter may have begun anew twice.
const SECONDS: std::ops::RangeInclusive<f64> = 0.5..=30.0;

impl PowerMeter {
    /// What the machine drew on average since this was called last; `None` the first time, and where nobody wants to know.
    pub(crate) fn sample(&mut self, options: &Values) -> Option<Power> {
        let root = options.text("nacre_power_root");
        if root.is_empty() {
            *self = Self::default();
            return None;
        }
        let model = Model {
            idle_watts: options.number("nacre_power_model_idle_watts"),
            busy_watts: options.number("nacre_power_model_busy_watts"),
        };
        self.sample_below(Path::new(root), model)
    }

    fn sample_below(&mut self, root: &Path, model: Model) -> Option<Power> {
        let uptime = uptime(&fs::read_to_string(root.join("proc/uptime")).ok()?)?;
        let before = self.uptime.replace(uptime);
        let (zones, used_uj) = self.read_zones(root);
        self.zones = zones;
        let seconds = before.map(|before| uptime.0 - before.0).filter(|seconds| SECONDS.contains(seconds))?;
        let idle = before.map(|before| uptime.1 - before.1).unwrap_or_default();
        match used_uj {
            Some(used_uj) => Some(power(used_uj as f64 / 1e6 / seconds, PowerSource::Measured)),
            None => {
                let processors = f64::from(processors(root)?);
                let busy = (processors - idle / seconds).clamp(0.0, processors);
                let watts = (processors - busy) * model.idle_watts + busy * model.busy_watts;
                Some(power(watts, PowerSource::Model))
            }
        }
    }

    /// The counter of each package, and what they have counted since; `None` where there is nothing to compare.
    fn read_zones(&self, root: &Path) -> (BTreeMap<String, u64>, Option<u64>) {
        let (mut zones, mut used_uj) = (BTreeMap::new(), None);
        for (name, folder) in packages(&root.join("sys/class/powercap")) {
            let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
            let Some(now) = number("energy_uj") else { return (zones, None) };
            if let Some(before) = self.zones.get(&name) {
                // It begins anew behind its largest value, within a minute under load.
                let range = number("max_energy_range_uj").unwrap_or(0);
                let used = if now >= *before { now - before } else { range.saturating_sub(*before) + now };
                *used_uj.get_or_insert(0) += used;
            }
            zones.insert(name, now);
        }
        (zones, used_uj)
    }
}

fn power(watts: f64, source: PowerSource) -> Power {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "no machine draws a terawatt"
    )]
    let milliwatts = (watts * 1000.0).clamp(0.0, 1e15) as u64;
    Power { milliwatts, source }
}

/// Packages, `intel-rapl:0`; `intel-rapl:0:0` is a part of one.
fn packages(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    let is_package = |name: &str| {
        name.strip_prefix("intel-rapl:")
            .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    named.filter(|(name, _)| is_package(name)).take(ZONES_MAX).collect()
}

fn uptime(text: &str) -> Option<Uptime> {
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// How many processors are online.
fn processors(root: &Path) -> Option<u32> {
    nacre_env::processors_of(&fs::read_to_string(root.join("sys/devices/system/cpu/online")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a folder"))
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
            fs::write(path, text).expect("a file");
        }

        fn sample(&self, meter: &mut PowerMeter) -> Option<(u64, PowerSource)> {
            let model = Model { idle_watts: 1.0, busy_watts: 9.0 };
            meter.sample_below(self.0.path(), model).map(|power| (power.milliwatts, power.source))
        }
    }

    #[test]
    fn energy_of_all_packages_is_measured_also_where_a_counter_begins_anew() {
        let machine = Machine::new();
        let energy = |package: u32, uj: u64| {
            machine.write(&format!("sys/class/powercap/intel-rapl:{package}/energy_uj"), &format!("{uj}\n"));
            machine.write(
                &format!("sys/class/powercap/intel-rapl:{package}/max_energy_range_uj"),
                "100000000\n",
            );
        };
        machine.write("sys/class/powercap/intel-rapl:0:0/energy_uj", "77\n");
        machine.write("sys/class/powercap/intel-rapl/enabled", "1\n");
        machine.write("proc/uptime", "100.00 150.00\n");
        energy(0, 99_000_000);
        energy(1, 5_000_000);
        let mut meter = PowerMeter::default();
        assert_eq!(machine.sample(&mut meter), None, "nothing to compare with");
        machine.write("proc/uptime", "102.00 152.00\n");
        energy(0, 9_000_000);
        energy(1, 15_000_000);
        assert_eq!(machine.sample(&mut meter), Some((10_000, PowerSource::Measured)));
    }

    #[test]
    fn a_machine_that_does_not_tell_is_modelled_by_how_busy_it_was() {
        let machine = Machine::new();
        let mut meter = PowerMeter::default();
        assert_eq!(machine.sample(&mut meter), None, "nothing is known at all");
        machine.write("sys/devices/system/cpu/online", "0-1,3\n");
        machine.write("proc/uptime", "100.00 150.00\n");
        assert_eq!(machine.sample(&mut meter), None);
        machine.write("proc/uptime", "110.00 165.00\n");
        // One and a half of three were idle.
        assert_eq!(machine.sample(&mut meter), Some((15_000, PowerSource::Model)));
        assert_eq!(machine.sample(&mut meter), None, "no time has passed");
    }

    /// The options say where to look, and what a processor takes.
    #[test]
    fn the_model_is_the_operators() {
        let machine = Machine::new();
        machine.write("sys/devices/system/cpu/online", "0-1\n");
        let root = machine.0.path().to_string_lossy().into_owned();
        let options = Values::from_iter([
            ("nacre_power_root", root.as_str()),
            ("nacre_power_model_idle_watts", "2"),
            ("nacre_power_model_busy_watts", "20"),
        ]);
        let mut meter = PowerMeter::default();
        machine.write("proc/uptime", "100.00 150.00\n");
        assert_eq!(meter.sample(&options), None);
        // One of two was idle.
        machine.write("proc/uptime", "110.00 160.00\n");
        assert_eq!(meter.sample(&options).map(|power| power.milliwatts), Some(22_000));
        let nobody = Values::from_iter([("nacre_power_root", "")]);
        machine.write("proc/uptime", "120.00 170.00\n");
        assert_eq!((meter.sample(&nobody), meter.sample(&options)), (None, None), "it begins anew");
    }

    #[test]
    fn what_is_no_number_is_no_measurement() {
        let machine = Machine::new();
        machine.write("proc/uptime", "so 1\n");
        machine.write("sys/devices/system/cpu/online", "3-1\n");
        assert_eq!(machine.sample(&mut PowerMeter::default()), None);
        assert_eq!((processors(machine.0.path()), uptime("1.5")), (None, None));
    }
}
