//! See `flatkube_fuzz::record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::record(data));
