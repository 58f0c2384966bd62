//! See `flatkube_fuzz::segment`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::segment(data));
