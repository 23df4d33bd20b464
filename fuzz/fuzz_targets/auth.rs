#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::auth`.

nacre_fuzz::fuzz_program!(auth);
