//! The program of a target: libFuzzer's where the feature `libfuzzer` is on, as `test/fuzz` has it; otherwise one that runs the target over
//! the files that it is given, with any compiler: what the fuzzer has found is looked at that way.

#[cfg(feature = "libfuzzer")]
pub use libfuzzer_sys;

/// The program of the target with this name; the file that has it begins with
/// `#![cfg_attr(feature = "libfuzzer", no_main)]`.
#[cfg(feature = "libfuzzer")]
#[macro_export]
macro_rules! fuzz_program {
    ($target:ident) => {
        $crate::program::libfuzzer_sys::fuzz_target!(|input: &[u8]| $crate::$target(input));
    };
}

/// The program of the target with this name.
#[cfg(not(feature = "libfuzzer"))]
#[macro_export]
macro_rules! fuzz_program {
    ($target:ident) => {
        fn main() -> std::io::Result<()> {
            $crate::program::replay($crate::$target)
        }
    };
}

/// Runs the target over each file that the program's arguments name.
///
/// # Errors
/// When there is none, or one cannot be read.
pub fn replay(target: fn(&[u8])) -> std::io::Result<()> {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    if files.is_empty() {
        let usage = "name the files to run this target over; the fuzzer itself is `test/fuzz`";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, usage));
    }
    for file in files {
        target(&std::fs::read(&file)?);
    }
    Ok(())
}
