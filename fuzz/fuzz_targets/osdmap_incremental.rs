#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::osdmap_incremental`.

nacre_fuzz::fuzz_program!(osdmap_incremental);
