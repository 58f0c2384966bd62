//! See `flatkube_fuzz::row`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::row(data));
