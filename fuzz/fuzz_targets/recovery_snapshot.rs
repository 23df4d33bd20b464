#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::recovery_snapshot`.

nacre_fuzz::fuzz_program!(recovery_snapshot);
