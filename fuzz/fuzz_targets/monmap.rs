#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::monmap`.

nacre_fuzz::fuzz_program!(monmap);
