#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::class_calls`.

nacre_fuzz::fuzz_program!(class_calls);
