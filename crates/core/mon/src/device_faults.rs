//! What devices say of themselves that means that they are to be replaced.

use nacre_msg::DeviceHealth;

/// NVMe's bit of `critical_warning` that spare blocks are below their limit.
const SPARE_BIT: u8 = 0;
/// What NVMe's bits of `critical_warning` mean, as far as they mean that a device is to be replaced. One that is too warm (bit 1) is not:
/// that is metrics' business.
const WARNINGS: [(u8, &str); 5] = [
    (SPARE_BIT, "spare blocks are below its limit"),
    (2, "it is unreliable because of errors"),
    (3, "it takes no more writes"),
    (4, "the backup of its volatile memory has failed"),
    (5, "its persistent memory region is unreliable"),
];

/// What a device says that means that it is to be replaced.
pub(crate) fn faults(health: &DeviceHealth) -> Vec<String> {
    let mut faults = Vec::new();
    // Of an NVMe device `smartctl` makes the verdict of these bits, the temperature's among them: the bits say more.
    if health.smart_passed == Some(false) && health.critical_warning.is_none() {
        faults.push("its own verdict (SMART) is that it fails".to_owned());
    }
    let warnings = health.critical_warning.unwrap_or(0);
    let spare = health.available_spare.zip(health.available_spare_threshold);
    let low_spare = spare.filter(|(spare, threshold)| spare < threshold);
    if let Some((spare, threshold)) = low_spare {
        faults.push(format!("{spare} % of its spare blocks are left, below its limit of {threshold} %"));
    }
    for (bit, meaning) in WARNINGS {
        let is_said = bit == SPARE_BIT && low_spare.is_some();
        if warnings & (1 << bit) != 0 && !is_said {
            faults.push(meaning.to_owned());
        }
    }
    if let Some(used) = health.percentage_used.filter(|used| *used >= 100) {
        faults.push(format!("{used} % of its rated life is used"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_taken_at_its_word() {
        let well = DeviceHealth {
            smart_passed: Some(true),
            critical_warning: None,
            available_spare: Some(10),
            available_spare_threshold: Some(10),
            percentage_used: Some(99),
            media_errors: Some(70),
            reallocated: Some(12),
            pending: Some(1),
            temperature_c: Some(70),
            power_on_hours: Some(1),
        };
        assert_eq!((faults(&well), faults(&DeviceHealth::default())), (Vec::new(), Vec::new()));
        let told = |health: DeviceHealth| faults(&health).join("; ");
        let fails = DeviceHealth { smart_passed: Some(false), ..well };
        assert!(told(fails).contains("SMART"));
        let warm = DeviceHealth { critical_warning: Some(0b10), ..fails };
        assert_eq!(told(warm), "", "one that is too warm need not be replaced");
        assert_eq!(
            told(DeviceHealth { percentage_used: Some(100), ..well }),
            "100 % of its rated life is used"
        );
        let spare = DeviceHealth { critical_warning: Some(0b1001), available_spare: Some(4), ..well };
        assert_eq!(
            told(spare),
            "4 % of its spare blocks are left, below its limit of 10 %; it takes no more writes"
        );
        let bits = DeviceHealth { critical_warning: Some(255), ..fails };
        assert_eq!(faults(&bits).len(), WARNINGS.len(), "bits that nobody knows are none");
    }
}
