#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::fsmap`.

nacre_fuzz::fuzz_program!(fsmap);
