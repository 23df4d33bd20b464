#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::recovery_key`.

nacre_fuzz::fuzz_program!(recovery_key);
