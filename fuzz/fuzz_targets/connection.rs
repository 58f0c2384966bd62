//! See `flatkube_fuzz::connection`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::connection(data));
