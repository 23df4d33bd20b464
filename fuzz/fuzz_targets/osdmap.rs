#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::osdmap`.

nacre_fuzz::fuzz_program!(osdmap);
