//! See `flatkube_fuzz::scalars`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::scalars(data));
