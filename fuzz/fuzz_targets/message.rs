#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::message`.

nacre_fuzz::fuzz_program!(message);
