#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::crush`.

nacre_fuzz::fuzz_program!(crush);
