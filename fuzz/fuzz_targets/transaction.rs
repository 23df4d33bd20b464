#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::transaction`.

nacre_fuzz::fuzz_program!(transaction);
