#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::mon_link`.

nacre_fuzz::fuzz_program!(mon_link);
