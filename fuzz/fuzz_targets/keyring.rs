#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::keyring`.

nacre_fuzz::fuzz_program!(keyring);
