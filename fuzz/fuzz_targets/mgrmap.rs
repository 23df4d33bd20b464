#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::mgrmap`.

nacre_fuzz::fuzz_program!(mgrmap);
