//! See `flatkube_fuzz::structural`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::structural(data));
