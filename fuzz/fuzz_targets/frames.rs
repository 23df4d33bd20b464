#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::frames`.

nacre_fuzz::fuzz_program!(frames);
