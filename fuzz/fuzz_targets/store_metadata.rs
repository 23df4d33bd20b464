#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::store_metadata`.

nacre_fuzz::fuzz_program!(store_metadata);
